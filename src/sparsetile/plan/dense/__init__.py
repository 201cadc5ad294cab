"""The dense products that sparse ones are compared with."""
