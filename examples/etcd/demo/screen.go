package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/thermostat-go/thermostat/examples/etcd/load"
)

// screen prints what happens. On a terminal the clients' view is on the last line, and changes. In a pipe it is a line
// every three seconds.
type screen struct {
	out      io.Writer
	terminal bool

	lock  sync.Mutex // guards what follows
	live  bool       // the last line is the clients' view
	drawn time.Time
}

func newScreen(out *os.File) *screen {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	return &screen{out: out, terminal: terminal}
}

// line prints a line.
func (s *screen) line(format string, args ...any) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.live {
		fmt.Fprintln(s.out)
	}
	s.live = false
	fmt.Fprintf(s.out, format+"\n", args...)
}

// Write prints the progress of a build.
func (s *screen) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		s.line("      %s", strings.TrimRight(line, "\n"))
	}
	return len(p), nil
}

// draw shows the last 40 seconds of the clients.
func (s *screen) draw(seconds []load.Second, report load.Report) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if !s.terminal && time.Since(s.drawn) < 3*time.Second || len(seconds) == 0 {
		return
	}
	s.drawn = time.Now()
	begin, end := "      ", "\n"
	if s.terminal {
		begin, end, s.live = "\r\033[K      ", "", true
	}
	last := seconds[len(seconds)-1]
	fmt.Fprintf(s.out, "%s%s %5d writes/s %5d reads/s, longest gap %.2f s%s", begin,
		bars(seconds[max(0, len(seconds)-40):]), last.Writes, last.Reads, report.Writes.Gap.Seconds(), end)
}

// bars draws the writes of each second. A second without a write is a point.
func bars(seconds []load.Second) string {
	most := 1
	for _, s := range seconds {
		most = max(most, s.Writes)
	}
	var b strings.Builder
	for _, s := range seconds {
		if s.Writes == 0 {
			b.WriteRune('.')
			continue
		}
		b.WriteRune([]rune("▁▂▃▄▅▆▇█")[s.Writes*7/most])
	}
	return b.String()
}
