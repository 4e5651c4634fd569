package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// narrator prints what happens. On a terminal the newest count replaces the last one. In a pipe every line stays, so it
// writes counts there at most twice a second.
type narrator struct {
	out      io.Writer
	terminal bool

	mu sync.Mutex
	// Guarded by mu. live is the count on the terminal's last line, if there is one, or the last that was written to a
	// pipe.
	live   string
	liveAt time.Time
}

const pipePace = 500 * time.Millisecond

func newNarrator(out *os.File) *narrator {
	info, err := out.Stat()
	return &narrator{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0 &&
		os.Getenv("TERM") != "dumb"}
}

func (n *narrator) step(number int, title string) { n.line(fmt.Sprintf("\n%d. %s", number, title)) }

func (n *narrator) result(text string) { n.line("   => " + text) }

func (n *narrator) text(format string, args ...any) {
	n.line("\n" + fmt.Sprintf(format, args...))
}

// count shows the current counts.
func (n *narrator) count(text string) {
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

func (n *narrator) line(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.terminal && n.live != "" {
		fmt.Fprintln(n.out)
	}
	n.live = ""
	fmt.Fprintln(n.out, text)
}

// Write prints the progress of a build, line by line.
func (n *narrator) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		n.line("      " + strings.TrimRight(line, "\n"))
	}
	return len(p), nil
}

func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}
