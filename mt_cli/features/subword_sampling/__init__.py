"""Another segmentation of each word at each epoch: BPE-dropout and unigram sampling."""
