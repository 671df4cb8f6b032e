// Package sample has mutants of every kind.
package sample

const fixed = 2 * 3

func grade(points int, done *[]string) (g string) {
	switch {
	case points >= 50 && points < 80:
		g = "b"
	case points >= 80:
		g = "a"
	default:
		g = "c"
	}
	*done = append(*done, g)
	return g + ""
}

func sum(list []float64, scale float64) (total float64) {
	for i := 0; i < len(list); i++ {
		total = total + -list[i]*scale/fixed
	}
	return total
}

func untested(m map[string]int, x uint) int {
	m["a"]++ // has no address: no mutant
	return 1<<x + len(m) - len(m)/3
}
