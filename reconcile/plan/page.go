package plan

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"
)

//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"count": count, "printable": printable, "value": pageValue, "stamp": stamp,
	"none": func(v any) bool { return v == nil }, "whole": printableLines,
	"ends": (*Restarts).ends,
}).ParseFS(pageFiles, "page/*.html"))

// longestOnPage is how many characters of a value a page has.
const longestOnPage = 2000

// WritePage writes the report as a page in HTML: one file, which loads nothing else and runs no script.
func (r *Report) WritePage(w io.Writer) error {
	style, err := pageFiles.ReadFile("page/style.css")
	if err != nil {
		return err
	}
	p := page{Report: r, Style: template.CSS(style), Title: "What the program would change"}
	if r.Program != "" {
		p.Title = "What " + r.Program + " would change"
	}
	groups, err := grouped(r.Changes)
	if err != nil {
		return err
	}
	for i, g := range groups {
		if len(p.Parts) == 0 || p.Parts[len(p.Parts)-1].Number != g.Wave {
			p.Parts = append(p.Parts, pageWave{Number: g.Wave})
		}
		last := &p.Parts[len(p.Parts)-1]
		one := pageChange{g, fmt.Sprint("change-", i+1)}
		last.Changes = append(last.Changes, one)
		if g.Restarts != nil || g.LosesData {
			p.Marked = append(p.Marked, one)
		}
	}
	return pageTemplate.ExecuteTemplate(w, "report", p)
}

// page is what the template is about.
type page struct {
	*Report
	Title  string
	Style  template.CSS
	Parts  []pageWave
	Marked []pageChange // that end pods or lose data
}

type pageWave struct {
	Number  int
	Changes []pageChange
}

type pageChange struct {
	group
	ID string // of its part of the page
}

// Head says what the report is of.
func (p page) Head() []line { return p.head() }

// Reasons is what is approximate.
func (p page) Reasons() []reason { return p.reasons() }

// InventedNote explains the word, if it stands anywhere.
func (p page) InventedNote() string {
	if p.hasInvented() {
		return inventedNote
	}
	return ""
}

// Short has changes of which only the objects are named.
func (p page) Short(all []Change) ([]group, error) { return groupedInShort(all) }

// Tone is the class of the verb.
func (c pageChange) Tone() string {
	return map[tone]string{added: "good", edited: "work", bad: "bad"}[c.tone()]
}

// Unfolded reports whether the fields are shown at once: those of a new object are many, and none was something else.
func (c pageChange) Unfolded() bool { return c.Verb == "update" }

// Restarting reports whether a field is one for which pods restart.
func (c pageChange) Restarting(f Field) bool {
	return c.Restarts != nil && slices.Contains(c.Restarts.Why, f.Path)
}

// pageValue is a value as a page shows it: a string as it is, all else as JSON.
func pageValue(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		data, err := json.Marshal(v)
		if err != nil {
			return "", err
		}
		s = string(data)
	}
	if runes := []rune(s); len(runes) > longestOnPage {
		s = string(runes[:longestOnPage]) + "..."
	}
	return s, nil
}

// printableLines is printable for a text that may have several lines.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = printable(strings.ReplaceAll(l, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
