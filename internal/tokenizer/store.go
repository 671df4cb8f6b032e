package tokenizer

type storeScratch struct{}

func (t *Tokenizer) prepareCutPoints() {}
