package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/term"
)

const (
	longestValue = 100 // characters of a value in text
	mostFields   = 20  // of a new object in text
	namesInLine  = 5   // of a group
)

// Write writes the report as text, markdown, html or json. Text is in colours if w is a terminal, unless NO_COLOR is
// set, as https://no-color.org says.
func (r *Report) Write(w io.Writer, format string) error {
	switch format {
	case "text":
		return r.write(w, text{takesColours(w)})
	case "markdown":
		return r.WriteMarkdown(w)
	case "html":
		return r.WritePage(w)
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return fmt.Errorf("plan: no format %q: it is %s", format, formats)
}

const formats = "text, markdown, html or json"

func takesColours(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && runtime.GOOS != "windows" && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" &&
		term.IsTerminal(int(file.Fd()))
}

// WriteText writes the report as text without colours.
func (r *Report) WriteText(w io.Writer) error { return r.write(w, text{}) }

// WriteMarkdown writes the report for the description of a pull request.
func (r *Report) WriteMarkdown(w io.Writer) error { return r.write(w, markdown{}) }

// tone is what a part of a line says, for its colour.
type tone int

const (
	plain  tone = iota
	strong      // a title
	faint       // what is of less interest
	added       // what is new
	edited      // what is another one
	bad         // what is gone, ends pods or was refused
)

// line is one line of a report, in parts.
type line []part

type part struct {
	tone tone
	text string
}

func (l line) add(t tone, text string) line { return append(l, part{t, text}) }

func (l line) String() string {
	var b strings.Builder
	for _, p := range l {
		b.WriteString(p.text)
	}
	return b.String()
}

// style is how the parts of a report are set.
type style interface {
	line(l line) string
	head(l line) string // above all else
	title(s string) string
	item(l line) string
	detail(l line) string
	begin() string // before the details of an item
	end() string   // after them
}

type text struct{ coloured bool }

// colours are ANSI's, of the terminal's own palette.
var colours = map[tone]string{strong: "1", faint: "2", added: "32", edited: "33", bad: "1;31"}

func (t text) line(l line) string {
	var b strings.Builder
	for _, p := range l {
		if colour := colours[p.tone]; t.coloured && colour != "" {
			b.WriteString("\x1b[" + colour + "m" + printable(p.text) + "\x1b[0m")
			continue
		}
		b.WriteString(printable(p.text))
	}
	return b.String()
}

func (t text) head(l line) string    { return t.line(l) + "\n" }
func (t text) title(s string) string { return "\n" + t.line(line{{strong, s}}) + "\n" }
func (t text) item(l line) string    { return "  " + t.line(l) + "\n" }
func (t text) detail(l line) string  { return "      " + t.line(l) + "\n" }
func (text) begin() string           { return "" }
func (text) end() string             { return "" }

// markdown has the details in blocks of code, in which nothing that a value holds is markup.
type markdown struct{}

func (markdown) line(l line) string    { return escaped(printable(l.String())) }
func (m markdown) head(l line) string  { return m.line(l) + "\n\n" }
func (markdown) title(s string) string { return "\n### " + s + "\n\n" }
func (m markdown) item(l line) string  { return "- " + m.line(l) + "\n" }
func (markdown) detail(l line) string  { return "      " + printable(l.String()) + "\n" }
func (markdown) begin() string         { return "\n" }
func (markdown) end() string           { return "\n" }

// printable returns a text without what would end its line, or drive a terminal: names and messages are made by others.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// escaped returns a text as Markdown that shows it.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune("\\`*_{}[]<>#|!~$&", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
		if r == '@' { // which would call somebody, also behind a backslash
			b.WriteRune('\u200b')
		}
	}
	return b.String()
}

func (r *Report) write(w io.Writer, s style) error {
	var b strings.Builder
	for _, l := range r.head() {
		b.WriteString(s.head(l))
	}
	b.WriteString(s.line(r.summary()) + "\n")
	if err := r.writeChanges(&b, s); err != nil {
		return err
	}
	list(&b, s, "Not in the list: what the controllers of the cluster make", r.Unlisted, said)
	list(&b, s, "Refused", r.Refused, Refusal.line)
	list(&b, s, "Hot loops", r.HotLoops, HotLoop.line)
	list(&b, s, "The cluster does not have", r.Unserved, said)
	list(&b, s, "Rights that the plan would have needed", r.Missing, Right.line)
	list(&b, s, "The program was connected to something else than the fork", r.Elsewhere, said)
	if r.ElsewhereUnknown != "" {
		list(&b, s, "Whether the program was connected to something else", []string{"nobody has looked: " +
			r.ElsewhereUnknown}, said)
	}
	list(&b, s, "Approximate: the cluster may do otherwise", r.reasons(), reason.line)
	for _, part := range []struct {
		title   string
		changes []Change
	}{
		{"Anyway: the other report has these changes as well", r.Anyway},
		{"No longer: the other report alone has these changes", r.NoLonger},
	} {
		groups, err := groupedInShort(part.changes)
		if err != nil {
			return err
		}
		list(&b, s, part.title, groups, group.short)
	}
	if r.hasInvented() {
		b.WriteString("\n" + s.line(line{{faint, inventedNote}}) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) writeChanges(b *strings.Builder, s style) error {
	groups, err := grouped(r.Changes)
	if err != nil {
		return err
	}
	wave := 0
	for _, g := range groups {
		if g.Wave != wave {
			wave = g.Wave
			b.WriteString(s.title(fmt.Sprintf("Wave %d", wave)))
		}
		g.write(b, s)
	}
	return nil
}

// head says what the report is of.
func (r *Report) head() (lines []line) {
	if r.Setup.Server != "" {
		lines = append(lines, line{{strong, cmp.Or(r.Program, "a program")}, {plain, " on a fork of " +
			r.Setup.String()}})
	}
	if r.OtherSetup != nil && r.OtherSetup.Server != "" {
		lines = append(lines, line{{faint, "compared with a report of " + r.OtherSetup.String()}})
	}
	return lines
}

// list writes a part of the report, if there is one.
func list[T any](b *strings.Builder, s style, title string, all []T, line func(T) line) {
	if len(all) == 0 {
		return
	}
	b.WriteString(s.title(title))
	for _, one := range all {
		b.WriteString(s.item(line(one)))
	}
}

func said(s string) line { return line{{plain, s}} }

// Summary is the report in a sentence.
func (r *Report) Summary() string { return r.summary().String() }

func (r *Report) summary() line {
	l := line{{strong, "no changes"}}
	if n := len(r.Changes); n > 0 {
		l[0].text = count(n, "change") + " in " + count(r.Waves(), "wave")
	}
	for _, of := range []struct {
		n    int
		what string
		show bool
	}{
		{r.Pods(), "pod", true}, {r.Losses(), "deletion of data", false}, {len(r.Refused), "refused request", false},
		{len(r.HotLoops), "hot loop", false},
	} {
		tone, what := bad, count(of.n, of.what)
		if of.n == 0 {
			tone = plain
		}
		if of.what == "pod" {
			what += " restarted or ended"
		}
		if of.n > 0 || of.show {
			l = l.add(plain, ", ").add(tone, what)
		}
	}
	if n := len(r.Anyway); n > 0 {
		l = l.add(plain, fmt.Sprintf("; %s as in the other report", count(n, "change")))
	}
	if doubt := r.Doubt(); doubt != "" {
		l = l.add(plain, "; ").add(edited, doubt).add(plain, ", so there may be more")
	}
	if n := len(r.NoLonger); n > 0 {
		l = l.add(plain, fmt.Sprintf("; %s of the other report no longer", count(n, "change")))
	}
	if r.OtherDoubt != "" {
		l = l.add(plain, "; of the other report: ").add(edited, r.OtherDoubt)
	}
	if len(r.Approximate) > 0 {
		l = l.add(plain, "; approximate, see below")
	}
	return l
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if head, tail, ok := strings.Cut(what, " of "); ok {
		return fmt.Sprintf("%d %ss of %s", n, head, tail)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (g group) write(b *strings.Builder, s style) {
	b.WriteString(s.item(g.line()))
	details := g.details()
	if len(details) == 0 {
		return
	}
	b.WriteString(s.begin())
	for _, d := range details {
		b.WriteString(s.detail(d))
	}
	b.WriteString(s.end())
}

// line names the changes of a group.
func (g group) line() line {
	l := line{{g.tone(), g.Verb}, {plain, " "}}
	if g.Subresource != "" {
		l = l.add(plain, g.Subresource+" of ")
	}
	l = l.add(strong, g.Title())
	if g.By != "" {
		l = l.add(faint, " ("+g.By+")")
	}
	if g.Writes > 1 {
		l = l.add(faint, fmt.Sprintf(", %d writes", g.Writes))
		if len(g.Objects) > 1 {
			l = l.add(faint, " each")
		}
	}
	if g.LosesData {
		l = l.add(plain, "  ").add(bad, "DATA IS LOST")
	}
	return l
}

func (c Change) tone() tone {
	switch c.Verb {
	case "create":
		return added
	case "update":
		return edited
	}
	return bad
}

// short is a group on one line.
func (g group) short() line {
	l := g.line()
	if names := g.Names(); len(names) > 0 {
		l = l.add(plain, ": "+strings.Join(names, ", "))
	}
	return l
}

// details are the lines below a group.
func (g group) details() (lines []line) {
	lines = g.Change.details()
	for names := range slices.Chunk(g.Names(), namesInLine) {
		lines = append(lines, line{{faint, strings.Join(names, ", ")}})
	}
	return lines
}

// details are the lines below a change.
func (c Change) details() (lines []line) {
	if c.Restarts != nil {
		lines = append(lines, c.Restarts.line())
	}
	if len(c.Waits) > 0 {
		lines = append(lines, said("waits for "+strings.Join(c.Waits, ", ")))
	}
	for i, f := range c.Fields {
		if c.Verb == "create" && i == mostFields {
			return append(lines, said(fmt.Sprintf("and %d more", len(c.Fields)-i)))
		}
		lines = append(lines, f.line(c.Verb == "create"))
	}
	if c.Verb == "update" && len(c.Fields) == 0 {
		lines = append(lines, line{{faint, "in the end as it was"}})
	}
	return lines
}

func (r Restarts) line() line {
	what := "RESTARTS "
	if r.ends() {
		what = "ENDS "
	}
	l := line{{bad, what + count(r.Pods, "pod")}}
	if r.When != "" {
		l[0].tone = edited
	}
	if len(r.Why) > 0 {
		l = l.add(plain, ": "+strings.Join(r.Why, ", "))
	}
	if r.When != "" {
		l = l.add(plain, "; "+r.When)
	}
	return l
}

func (f Field) line(created bool) line {
	l := said(f.Path + ": ")
	if f.Invented {
		f.Invented = false
		return append(l[:0], f.line(created)...).add(faint, " "+invented)
	}
	switch {
	case f.Hidden:
		return l.add(faint, "(not shown)")
	case created:
		return l.add(plain, shown(f.New))
	case f.New == nil:
		return l.add(bad, shown(f.Old)).add(plain, " is removed")
	case f.Old == nil:
		return l.add(added, shown(f.New)).add(plain, " is added")
	}
	return l.add(bad, shown(f.Old)).add(plain, " -> ").add(added, shown(f.New))
}

// shown is a value on one line.
func shown(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if runes := []rune(string(data)); len(runes) > longestValue {
		return string(runes[:longestValue]) + "..."
	}
	return string(data)
}

func (r Refusal) line() line {
	l := line{{plain, r.Verb + " "}}
	if r.Subresource != "" {
		l = l.add(plain, r.Subresource+" of ")
	}
	l = l.add(strong, r.Object.String()).add(plain, ": ").add(bad, strings.TrimSpace(fmt.Sprint(r.Code, " ", r.Reason)))
	if r.Message != "" {
		l = l.add(plain, ", "+r.Message)
	}
	return l.add(faint, times(r.Times))
}

func times(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" (%d times)", n)
}

func (h HotLoop) line() line {
	var l line
	if h.Subresource != "" {
		l = l.add(plain, h.Subresource+" of ")
	}
	l = l.add(strong, h.Object.String()).add(plain, fmt.Sprintf(": %d writes in %.1f s, %d of which changed it",
		h.Writes, h.Seconds, h.Changes))
	if len(h.Fields) > 0 {
		l = l.add(plain, ": "+strings.Join(h.Fields, ", "))
	}
	return l
}

func (r reason) line() line {
	return line{{plain, strings.Join(r.Resources, ", ") + ": " + r.Why}, {faint, times(r.Times)}}
}

func (r Right) line() line {
	name := r.Verb + " " + r.Resource
	if r.Group != "" {
		name += "." + r.Group
	}
	if r.Namespace != "" {
		name += " in " + r.Namespace
	}
	return said(name)
}
