package decision

import "warmroute/internal/decision/decisiontest"

const blockSize = decisiontest.BlockSize

var (
	replica = decisiontest.Replica
	newBook = decisiontest.Book
)
