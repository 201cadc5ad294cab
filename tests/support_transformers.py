"""Small models of transformers, made from their configurations: nothing is downloaded."""

import pytest

transformers = pytest.importorskip("transformers")


def gpt2(**options):
    """Layers of transformers' own kind, `Conv1D`; head tied to the embedding."""
    config = transformers.GPT2Config(
        n_layer=2,
        n_embd=32,
        n_head=4,
        vocab_size=64,
        n_positions=32,
        bos_token_id=0,
        eos_token_id=0,
        **{"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0} | options,
    )
    return transformers.GPT2LMHeadModel(config)


def bert(**options):
    """Masked language model; head with a bias, tied to the embedding."""
    config = transformers.BertConfig(
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=64,
        vocab_size=64,
        max_position_embeddings=32,
        **{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0} | options,
    )
    return transformers.BertForMaskedLM(config)


def llama(**options):
    """Gated MLP, fewer heads for keys and values; head tied to the embedding."""
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        max_position_embeddings=32,
        bos_token_id=0,
        eos_token_id=0,
        **{"tie_word_embeddings": True} | options,
    )
    return transformers.LlamaForCausalLM(config)


def t5(**options):
    """Encoder and decoder, each with an embedding; both and the head have one table."""
    config = transformers.T5Config(
        vocab_size=64,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=1,
        num_heads=4,
        decoder_start_token_id=0,
        **{"dropout_rate": 0.0} | options,
    )
    return transformers.T5ForConditionalGeneration(config)
