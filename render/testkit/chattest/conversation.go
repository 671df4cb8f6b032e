package chattest

import (
	"fmt"
	"strings"
)

// Conversation returns a chat body of about n tokens of Qwen3; salt makes its texts new to
// the process.
func Conversation(n int, salt string) []byte {
	line := "The quick brown fox jumps over the lazy dog, said the expert; nobody disagreed with claim number "
	var b strings.Builder
	b.WriteString(`{"model":"m","messages":[{"role":"system","content":"You are terse. ` + salt + `"}`)
	for i, tokens := 0, 20; tokens < n; i++ {
		text := ""
		for j := range 8 {
			text += fmt.Sprintf("%s%d%s. ", line, i*8+j, salt)
		}
		fmt.Fprintf(&b, `,{"role":%q,"content":"%s"}`, [2]string{"user", "assistant"}[i%2], text)
		tokens += 8 * 24
	}
	return []byte(b.String() + `,{"role":"user","content":"And now?"}]}`)
}
