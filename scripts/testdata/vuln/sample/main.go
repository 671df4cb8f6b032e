// Command sample calls the function that the database beside it says is vulnerable:
// scripts/vuln.sh must find it, or it reads no databases.
package main

import (
	"fmt"
	"strings"
)

func main() { fmt.Println(strings.ToTitle("found")) }
