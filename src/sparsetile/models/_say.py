"""What is said when a file or a model is not what it should be."""


def refusal(asked: str, *, got: object, allowed: str, fix: str) -> ValueError:
    """Make the error for input that cannot be taken.

    Args:
        asked: The file and key, or the argument, in the user's words.
        got: What was found.
        allowed: What is allowed.
        fix: What to do.

    Returns:
        The error, to be raised.

    Examples:
        >>> refusal("a.bin, key 'w'", got="no data", allowed="numbers", fix="get it again")
        ValueError("a.bin, key 'w': got no data; allowed: numbers; get it again")
    """
    return ValueError(f"{asked}: got {got}; allowed: {allowed}; {fix}")


def kind_error(asked: str, *, got: object, allowed: str, fix: str) -> TypeError:
    """Make the error for an argument of the wrong type.

    Args:
        asked: The argument.
        got: What was given.
        allowed: What is allowed.
        fix: What to do.

    Returns:
        The error, to be raised.

    Examples:
        >>> kind_error("model", got="an int", allowed="a Module", fix="pass one")
        TypeError('model: got an int; allowed: a Module; pass one')
    """
    return TypeError(f"{asked}: got {got}; allowed: {allowed}; {fix}")
