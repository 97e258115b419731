"""`mt`: train machine translation models from parallel text, and translate with them."""
