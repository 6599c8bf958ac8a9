package main

// nearest returns the name that a slip of the fingers makes into word: one
// letter more, less, wrong or swapped, or one for every three letters. "" when
// there is none: a wrong guess misleads more than no guess.
func nearest(word string, names []string) string {
	best, least := "", max(1, len(word)/3)+1
	for _, name := range names {
		if len(name) < 2 || len(word) < 2 || len(word) > 64 {
			continue // every letter is near every other one
		}
		if d := slips(word, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// slips is the optimal string alignment distance, in bytes.
func slips(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
