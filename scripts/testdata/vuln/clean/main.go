// Command clean imports the package of the function that the database beside it says is
// vulnerable, and does not call the function: scripts/vuln.sh must not report it.
package main

import (
	"fmt"
	"strings"
)

func main() { fmt.Println(strings.ToUpper("clean")) }
