package index

// HolderID is the small number of a Holder while its replica is known.
type HolderID int32

// Match is how much of one prompt one holder has. Counts are blocks from the start of
// the prompt without a gap.
type Match struct {
	ID      HolderID
	Blocks  int32 // on GPU
	Lower   int32 // Blocks, or a copy in CPU memory
	Storage int32 // Lower, or a copy in storage

	// Grouped reports that the holder's cache has several groups, or drops blocks for
	// a draft model. Hit is then the tokens that it takes from its cache, and the
	// counts are the blocks of Hit. Full is the tokens that full attention holds:
	// behind Hit the other groups lack blocks, which they keep once the prompt is
	// computed there.
	Grouped bool
	Hit     int32
	Full    int32 // at least Hit; 0: unknown
	Loaded  int32 // tokens behind Hit that it loads from CPU memory
}
