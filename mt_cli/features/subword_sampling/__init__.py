"""Random segmentation of words, anew in each epoch: BPE-dropout and unigram sampling."""
