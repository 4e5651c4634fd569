package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
)

const (
	longestValue = 100 // characters of a value in text
	mostFields   = 20  // of a new object in text
)

// WriteText writes the report for a terminal.
func (r *Report) WriteText(w io.Writer) error { return r.write(w, text{}) }

// WriteMarkdown writes the report for the description of a pull request.
func (r *Report) WriteMarkdown(w io.Writer) error { return r.write(w, markdown{}) }

// style is how the parts of a report are set.
type style interface {
	title(s string) string
	item(s string) string
	detail(s string) string
	begin() string // before the details of an item
	end() string   // after them
}

type text struct{}

func (text) title(s string) string  { return "\n" + s + "\n" }
func (text) item(s string) string   { return "  " + printable(s) + "\n" }
func (text) detail(s string) string { return "      " + printable(s) + "\n" }
func (text) begin() string          { return "" }
func (text) end() string            { return "" }

// markdown has the details in blocks of code, in which nothing that a value holds is markup.
type markdown struct{}

func (markdown) title(s string) string  { return "\n### " + s + "\n\n" }
func (markdown) item(s string) string   { return "- " + escaped(printable(s)) + "\n" }
func (markdown) detail(s string) string { return "      " + printable(s) + "\n" }
func (markdown) begin() string          { return "\n" }
func (markdown) end() string            { return "\n" }

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
		if strings.ContainsRune("\\`*_{}[]<>#|!~", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func (r *Report) write(w io.Writer, s style) error {
	var b strings.Builder
	b.WriteString(r.Summary() + "\n")
	wave := 0
	for _, c := range r.Changes {
		if c.Wave != wave {
			wave = c.Wave
			b.WriteString(s.title(fmt.Sprintf("Wave %d", wave)))
		}
		c.write(&b, s)
	}
	list(&b, s, "Refused", r.Refused, Refusal.line)
	list(&b, s, "Hot loops", r.HotLoops, HotLoop.line)
	list(&b, s, "The cluster does not have", r.Unserved, func(name string) string { return name })
	list(&b, s, "Rights that the plan would have needed", r.Missing, Right.line)
	list(&b, s, "Approximate: the cluster may do otherwise", r.Approximate, Approximation.line)
	_, err := io.WriteString(w, b.String())
	return err
}

// list writes a part of the report, if there is one.
func list[T any](b *strings.Builder, s style, title string, all []T, line func(T) string) {
	if len(all) == 0 {
		return
	}
	b.WriteString(s.title(title))
	for _, one := range all {
		b.WriteString(s.item(line(one)))
	}
}

// Summary is the report in a sentence.
func (r *Report) Summary() string {
	parts := []string{"no changes"}
	if n := len(r.Changes); n > 0 {
		parts[0] = count(n, "change") + " in " + count(r.Waves(), "wave")
	}
	parts = append(parts, count(r.Pods(), "pod")+" restarted or ended")
	for _, part := range []struct {
		n    int
		what string
	}{{r.Losses(), "deletion of data"}, {len(r.Refused), "refused request"}, {len(r.HotLoops), "hot loop"}} {
		if part.n > 0 {
			parts = append(parts, count(part.n, part.what))
		}
	}
	line := strings.Join(parts, ", ")
	if doubt := r.Doubt(); doubt != "" {
		line += "; " + doubt + ", so there may be more"
	}
	if len(r.Approximate) > 0 {
		line += "; approximate, see below"
	}
	return line
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

func (c Change) write(b *strings.Builder, s style) {
	line := c.Verb + " "
	if c.Subresource != "" {
		line += c.Subresource + " of "
	}
	line += c.Object.String()
	if c.By != "" {
		line += " (" + c.By + ")"
	}
	if c.Writes > 1 {
		line += fmt.Sprintf(", %d writes", c.Writes)
	}
	if c.LosesData {
		line += "  DATA IS LOST"
	}
	b.WriteString(s.item(line))
	details := c.details()
	if len(details) == 0 {
		return
	}
	b.WriteString(s.begin())
	for _, d := range details {
		b.WriteString(s.detail(d))
	}
	b.WriteString(s.end())
}

// details are the lines below a change.
func (c Change) details() (lines []string) {
	if r := c.Restarts; r != nil {
		line := "RESTARTS " + count(r.Pods, "pod")
		if len(r.Why) == 0 {
			line = "ENDS " + count(r.Pods, "pod")
		} else {
			line += ": " + strings.Join(r.Why, ", ")
		}
		if r.When != "" {
			line += "; " + r.When
		}
		lines = append(lines, line)
	}
	if len(c.Waits) > 0 {
		lines = append(lines, "waits for "+strings.Join(c.Waits, ", "))
	}
	for i, f := range c.Fields {
		if c.Verb == "create" && i == mostFields {
			return append(lines, fmt.Sprintf("and %d more", len(c.Fields)-i))
		}
		lines = append(lines, f.line(c.Verb == "create"))
	}
	if c.Verb == "update" && len(c.Fields) == 0 {
		lines = append(lines, "in the end as it was")
	}
	return lines
}

func (f Field) line(created bool) string {
	switch {
	case f.Hidden:
		return f.Path + ": (not shown)"
	case created:
		return f.Path + ": " + shown(f.New)
	case f.New == nil:
		return f.Path + ": " + shown(f.Old) + " is removed"
	case f.Old == nil:
		return f.Path + ": " + shown(f.New) + " is added"
	}
	return f.Path + ": " + shown(f.Old) + " -> " + shown(f.New)
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

func (r Refusal) line() string {
	line := r.Verb + " "
	if r.Subresource != "" {
		line += r.Subresource + " of "
	}
	line += fmt.Sprintf("%s: %d", r.Object, r.Code)
	if r.Reason != "" {
		line += " " + r.Reason
	}
	if r.Message != "" {
		line += ", " + r.Message
	}
	return line + times(r.Times)
}

func times(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" (%d times)", n)
}

func (h HotLoop) line() string {
	line := fmt.Sprintf("%s: %d writes in %.1f s, %d of which changed it", h.Object, h.Writes, h.Seconds, h.Changes)
	if len(h.Fields) > 0 {
		line += ": " + strings.Join(h.Fields, ", ")
	}
	return line
}

func (a Approximation) line() string {
	name := a.Resource
	if a.Group != "" {
		name += "." + a.Group
	}
	return name + ": " + a.Why + times(a.Times)
}

func (r Right) line() string {
	line := r.Verb + " " + r.Resource
	if r.Group != "" {
		line += "." + r.Group
	}
	if r.Namespace != "" {
		return line + " in " + r.Namespace
	}
	return line
}
