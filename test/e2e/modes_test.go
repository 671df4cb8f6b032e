package e2e

import (
	"fmt"
	"io"
	"net/http"
)

// explained is the router's record of its last n decisions.
func (st *stack) explained(n int) string {
	resp, err := http.Get(fmt.Sprintf("http://%s/debug/explain?n=%d", st.admin, n))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}
