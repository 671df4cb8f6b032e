package bound

import "fmt"

// MostNotes is how many notes of one kind are listed where nothing else is said: a page is for people.
const MostNotes = 8

// Notes returns the first notes of a list, at most so many, and how many more of what there are.
func Notes(all []string, most int, what string) []string {
	if len(all) <= most {
		return all
	}
	return append(all[:most:most], fmt.Sprintf("%d more %s", len(all)-most, what))
}
