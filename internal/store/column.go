package store

// page is how many elements a column allocates at once. Only its first page grows to that size step by step.
const (
	pageBits = 10
	page     = 1 << pageBits
)

// column is an array that grows without being copied: a push takes the same time however much it holds, and allocates
// little that is not soon used. The zero value is empty.
type column[T any] struct {
	// pages hold the elements in order. All but the last two are full; the last may be empty, so that a pop and a push
	// on the border of two pages, again and again, do not allocate.
	pages [][]T
	len   int
}

func (c *column[T]) at(i Row) *T { return &c.pages[i>>pageBits][i%page] }

func (c *column[T]) push(v T) {
	last := c.len >> pageBits
	switch {
	case last < len(c.pages):
	case last == 0:
		c.pages = append(c.pages, nil)
	default:
		c.pages = append(c.pages, make([]T, 0, page))
	}
	c.pages[last] = append(c.pages[last], v)
	c.len++
}

func (c *column[T]) pop() {
	c.len--
	last := c.len >> pageBits
	i := c.len % page
	clear(c.pages[last][i:]) // or it would keep something alive
	c.pages[last] = c.pages[last][:i]
	if len(c.pages) > last+2 {
		c.pages[last+2] = nil
		c.pages = c.pages[:last+2]
	}
}

// remove moves the last element to i.
func (c *column[T]) remove(i Row) {
	*c.at(i) = *c.at(Row(c.len - 1))
	c.pop()
}

func (c *column[T]) snapshot() []T {
	all := make([]T, 0, c.len)
	for _, p := range c.pages {
		all = append(all, p...)
	}
	return all
}
