package main

import (
	"fmt"
	"html"
	"os"
	"strings"

	"github.com/thermostat-go/thermostat/examples/etcd/load"
)

// mark is an act in the plot: its beginning, in seconds.
type mark struct {
	at   float64
	name string
}

// The plot's size, and the part of it that has the lines.
const (
	width, height           = 960, 420
	left, right, top, lower = 60, 940, 110, 380
)

// plot writes the clients' view as an SVG.
func plot(path string, seconds []load.Second, marks []mark) error {
	return os.WriteFile(path, []byte(draw(seconds, marks)), 0o644)
}

func draw(seconds []load.Second, marks []mark) string {
	most := 1
	for _, s := range seconds {
		most = max(most, s.Writes, s.Reads, s.Failed)
	}
	x := func(second float64) float64 {
		return left + second/float64(max(1, len(seconds)-1))*(right-left)
	}
	y := func(n int) float64 { return lower - float64(n)/float64(most)*(lower-top) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" `+
		`font-size="12"><rect width="100%%" height="100%%" fill="white"/>`+"\n", width, height)
	for _, m := range marks {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#bbb"/>`+
			`<text transform="translate(%.1f,%d) rotate(-35)">%s</text>`+"\n", x(m.at), top, x(m.at), lower, x(m.at)+4,
			top-6, html.EscapeString(m.name))
	}
	for i, of := range []struct {
		name, colour string
		of           func(load.Second) int
	}{
		{"writes a second", "#1668a8", func(s load.Second) int { return s.Writes }},
		{"reads a second", "#2c8c3c", func(s load.Second) int { return s.Reads }},
		{"failed requests a second", "#c0392b", func(s load.Second) int { return s.Failed }},
	} {
		var points []string
		for second, s := range seconds {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(float64(second)), y(of.of(s))))
		}
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>`+"\n", of.colour,
			strings.Join(points, " "))
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", left+i*170, height-8, of.colour, of.name)
	}
	for _, n := range []int{0, most / 2, most} {
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">%d</text>`+"\n", left-8, y(n)+4, n)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%d s</text>`+"\n</svg>\n", right, lower+16, len(seconds))
	return b.String()
}
