package story

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Narrator prints what happens. On a terminal the newest count replaces the last one. In a pipe every line stays, so it
// writes counts there at most twice a second.
type Narrator struct {
	out      io.Writer
	terminal bool

	mu sync.Mutex
	// Guarded by mu. live is the count on the terminal's last line, if there is one, or the last that was written to a
	// pipe.
	live   string
	liveAt time.Time
}

const pipePace = 500 * time.Millisecond

// NewNarrator makes one that writes to a terminal, a pipe or a buffer.
func NewNarrator(out io.Writer) *Narrator {
	n := &Narrator{out: out}
	if file, ok := out.(*os.File); ok {
		info, err := file.Stat()
		n.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	}
	return n
}

func (n *Narrator) act(number int, title string) { n.Line(fmt.Sprintf("\n%d. %s", number, title)) }

func (n *Narrator) result(text string) { n.Line("   => " + text) }

// Text prints a paragraph.
func (n *Narrator) Text(format string, args ...any) {
	n.Line("\n" + fmt.Sprintf(format, args...))
}

// Count shows the current counts.
func (n *Narrator) Count(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if text == n.live || (!n.terminal && time.Since(n.liveAt) < pipePace) {
		return
	}
	n.live, n.liveAt = text, time.Now()
	if n.terminal {
		fmt.Fprintf(n.out, "\r\033[K      %s", text)
		return
	}
	fmt.Fprintf(n.out, "      %s\n", text)
}

// Line prints a line.
func (n *Narrator) Line(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.terminal && n.live != "" {
		fmt.Fprintln(n.out)
	}
	n.live = ""
	fmt.Fprintln(n.out, text)
}

// Write prints the progress of a build, line by line.
func (n *Narrator) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		n.Line("      " + strings.TrimRight(line, "\n"))
	}
	return len(p), nil
}

// Seconds returns a duration as text.
func Seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}
