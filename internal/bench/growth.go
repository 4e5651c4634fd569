package main

import (
	"context"
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// growth is how a figure changes with the size of something.
type growth struct {
	title  string
	size   string // what x counts
	m      measure
	points []point
	most   float64 // how fast it may grow, compared with the peer's; zero: there is no target
}

type point struct {
	label string
	x     float64
	row   row
}

func sizes(bench string) []point {
	at := func(n string) row { return row{bench: bench + "/n=" + n, time: "1x"} }
	return []point{{"10k", 1e4, at("10000")}, {"100k", 1e5, at("100000")}, {"1M", 1e6, at("1000000")}}
}

func cores(r row) []point {
	one, two := r, r
	one.cpu, two.cpu = "1", "2"
	return []point{{"1", 1, one}, {"2", 2, two}}
}

func handlers(n, updates string) row {
	return row{bench: "InformerUpdate/handlers=" + n, time: updates}
}

var growths = []growth{
	{title: "queue: Add to Done of a key", size: "keys", m: measure{unit: "sec/key"}, most: 0.9,
		points: sizes("GrowthQueue")},
	{title: "queue: memory of a key", size: "keys", m: measure{unit: "B/key"}, most: 1, points: sizes("GrowthQueue")},
	// At a million objects both wait for memory, as long as the machine's takes.
	{title: "store: Get", size: "objects", m: measure{unit: "sec/key"}, most: 1.1, points: sizes("GrowthStore")},
	{title: "store: memory beside an object", size: "objects", m: measure{unit: "B/key"}, most: 1,
		points: sizes("GrowthStore")},
	{title: "informer: an update", size: "handlers", m: measure{unit: "sec/op"}, most: 1, points: []point{
		{"1", 1, handlers("1", "100000x")}, {"10", 10, handlers("10", "100000x")},
		{"100", 100, handlers("100", "20000x")},
	}},
	{title: "queue: Add, Get, Forget, Done", size: "cores", m: measure{unit: "sec/op"},
		points: cores(row{bench: "QueueOneKey", time: "500ms", often: 5})},
	{title: "queue: 8 producers, 8 workers", size: "cores", m: measure{unit: "keys/s"},
		points: cores(row{bench: "QueueContended", time: "3x", often: 5})},
	{title: "store: Get of 150k objects", size: "cores", m: measure{unit: "sec/op"},
		points: cores(row{bench: "StoreGet", time: "500ms", often: 5})},
	{title: "cold start of 150k pods in protobuf", size: "cores", m: measure{unit: "sec/op"},
		points: cores(row{
			bench: "ColdStart/protobuf,plain", time: "1x", apart: true, measures: []measure{{unit: "sec/op"}},
		})},
}

// growthPart is what growths are asked for by.
const growthPart = "growth"

// grow measures growths, prints a table of them, plots them to a file if there is one, and says how many of the targets
// are not met.
func (b *bench) grow(ctx context.Context, out table, growths []growth, svg string) (short int, err error) {
	if len(growths) == 0 {
		return 0, nil
	}
	results := make([][]figures, len(growths))
	for i, g := range growths {
		runs := *b
		if g.most == 0 {
			runs.count = 1 // no target hangs on it
		}
		for _, p := range g.points {
			f, err := runs.run(ctx, p.row)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", p.row.bench, err)
			}
			results[i] = append(results[i], f)
		}
		if g.most == 0 {
			continue
		}
		ours, theirs := g.grown("thermostat", results[i]), g.grown(clientGo, results[i])
		ok := ours <= g.most*theirs
		if !ok {
			short++
		}
		name := fmt.Sprintf("growth: %s, %s to %s %s", g.title, g.points[0].label, g.points[len(g.points)-1].label,
			g.size)
		show := func(v float64) string { return "+" + g.m.show(v) }
		if g.linear() {
			show = func(v float64) string { return fmt.Sprintf("x %.2f", v) }
		}
		out.print(name, show(ours), show(theirs), fmt.Sprintf("%.2f", ours/theirs), fmt.Sprintf("<= %g", g.most),
			ok)
	}
	for i, g := range growths {
		fmt.Fprintf(out.w, "\n%-42s", g.title+", "+g.size)
		for _, p := range g.points {
			fmt.Fprintf(out.w, "%12s", p.label)
		}
		for _, side := range []string{"thermostat", clientGo} {
			fmt.Fprintf(out.w, "\n  %-40s", side)
			for _, f := range results[i] {
				fmt.Fprintf(out.w, "%12s", g.m.show(median(f[side][g.m.unit])))
			}
		}
		fmt.Fprintln(out.w)
	}
	if svg == "" {
		return short, nil
	}
	return short, plotGrowths(svg, growths, results)
}

// linear says that the figure is memory, which is to be the same for each thing, however many there are.
func (g growth) linear() bool { return g.m.unit == "B/key" }

// grown is how much a figure has grown from the first point to the last. Of memory it is the factor; of time it is the
// difference, the slope of the plot: what is fast as long as everything is in the processor's caches would be punished
// by a factor for just that.
func (g growth) grown(side string, f []figures) float64 {
	first, last := median(f[0][side][g.m.unit]), median(f[len(f)-1][side][g.m.unit])
	if g.linear() {
		return last / first
	}
	return last - first
}

// plotGrowths draws the growths beside each other, two a row.
func plotGrowths(path string, growths []growth, results [][]figures) error {
	const columns = 2
	rows := (len(growths) + columns - 1) / columns
	plots := make([][]*plot.Plot, rows)
	for i := range plots {
		plots[i] = make([]*plot.Plot, columns)
	}
	for i, g := range growths {
		p, err := g.plot(results[i])
		if err != nil {
			return err
		}
		plots[i/columns][i%columns] = p
	}
	canvas := vgsvg.New(columns*10*vg.Centimeter, vg.Length(rows)*6*vg.Centimeter)
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: vg.Centimeter / 2, PadY: vg.Centimeter / 2}
	for i, canvases := range plot.Align(plots, tiles, draw.New(canvas)) {
		for j, c := range canvases {
			if plots[i][j] != nil {
				plots[i][j].Draw(c)
			}
		}
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := canvas.WriteTo(f); err != nil {
		return err
	}
	return f.Close()
}

func (g growth) plot(results []figures) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = g.title, g.size
	p.BackgroundColor = color.White
	p.X.Scale, p.Y.Min = plot.LogScale{}, 0
	var ticks plot.ConstantTicks
	for _, point := range g.points {
		ticks = append(ticks, plot.Tick{Value: point.x, Label: point.label})
	}
	p.X.Tick.Marker = ticks
	p.Y.Tick.Marker = plot.TickerFunc(func(from, to float64) []plot.Tick {
		ticks := plot.DefaultTicks{}.Ticks(from, to)
		for i := range ticks {
			if ticks[i].Label != "" {
				ticks[i].Label = g.m.show(ticks[i].Value)
			}
		}
		return ticks
	})
	for _, side := range []struct {
		name  string
		color color.Color
	}{
		{clientGo, color.RGBA{R: 0xc0, G: 0x50, B: 0x30, A: 0xff}},
		{"thermostat", color.RGBA{R: 0x20, G: 0x60, B: 0xb0, A: 0xff}},
	} {
		points := make(plotter.XYs, len(results))
		for i, f := range results {
			points[i] = plotter.XY{X: g.points[i].x, Y: median(f[side.name][g.m.unit])}
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, dots.Color, dots.Shape = side.color, side.color, draw.CircleGlyph{}
		p.Add(line, dots)
		p.Legend.Add(side.name, line, dots)
	}
	p.Legend.Top, p.Legend.Left = true, true
	return p, nil
}
