package sharding

import "slices"

// A word is a text that an earlier owner of slices has left for the next one. It says what that has to have seen before
// its work begins. A slice that is in no word had an owner who could leave none.
type word struct {
	Text   string `json:"text"`
	Slices []int  `json:"slices"`
}

// A table with all of its words has to fit into an annotation, and is sent to all replicas when it changes. Whoever
// finds no word does without.
const (
	maxWord  = 8 << 10  // bytes of one
	maxWords = 32 << 10 // of all: the oldest are dropped
)

// wordOf returns the word for the owner of a slice.
func (t *table) wordOf(slice int) (text string, ok bool) {
	for _, w := range t.Words {
		if slices.Contains(w.Slices, slice) {
			return w.Text, true
		}
	}
	return "", false
}

// leave sets the words of a table that the member of a number is about to write in the place of an earlier one. Text is
// what it leaves about slices of its own; empty: nothing. A slice
//
//	that it gives away, with a text   has that as its word
//	that it gives away, without one   keeps the word that it has: this replica has not begun its work
//	that it takes from another owner  has none: who knows what that has written?
//	that had no owner, or keeps it    keeps the word that it has
func (t *table) leave(from *table, me int, ours []int, text string) {
	var words []word
	for _, w := range from.Words {
		w.Slices = slices.DeleteFunc(slices.Clone(w.Slices), func(slice int) bool {
			before := from.Owners[slice]
			return slices.Contains(ours, slice) || before != 0 && before != me && t.Owners[slice] != before
		})
		if len(w.Slices) > 0 {
			words = append(words, w)
		}
	}
	if text != "" && len(text) <= maxWord && len(ours) > 0 {
		words = append(words, word{text, ours})
	}
	size := 0
	for i, w := range slices.Backward(words) {
		if size += len(w.Text); size > maxWords {
			words = words[i+1:]
			break
		}
	}
	t.Words = words
}

// given returns the slices that a member of a number has in one table and not in the next.
func given(from, next *table, me int) (all []int) {
	for slice, owner := range from.Owners {
		if owner == me && next.Owners[slice] != me {
			all = append(all, slice)
		}
	}
	return all
}
