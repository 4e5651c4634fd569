package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// plain replaces what a terminal would take for a command, such as escape sequences, in a text from elsewhere.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return '\uFFFD'
		}
		return r
	}, text)
}

func object(namespace, name string) string { return plain(strings.TrimPrefix(namespace+"/"+name, "/")) }

func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func since(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return short(now.Sub(t))
}

func errorText(e *status.Error) string {
	if e == nil {
		return ""
	}
	s := cmp.Or(e.Reason, e.Type)
	if e.Code != 0 {
		s += fmt.Sprintf(" (%d)", e.Code)
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return plain(s)
}

// writeKey writes the sentence about a key and its runs, the latest last, as a log has them.
func writeKey(out io.Writer, k status.Key, named bool) {
	if named {
		fmt.Fprintf(out, "%s: ", plain(k.Controller))
	}
	fmt.Fprintln(out, plain(k.Why))
	runs := k.Runs
	if k.Running != nil {
		runs = append(runs, *k.Running)
	}
	for _, r := range runs {
		result, took := r.Result, r.Took
		if result == "" {
			result, took = "running", k.At.Sub(r.Started)
		}
		fmt.Fprintf(out, "\n%s  %s, took %s", r.Started.Local().Format("15:04:05.000"), plain(result), short(took))
		if r.Error != nil {
			fmt.Fprintf(out, ": %s", errorText(r.Error))
		}
		fmt.Fprintln(out)
		for _, c := range r.Causes {
			fmt.Fprintf(out, "    named by  %s %s", plain(c.Source), object(c.Namespace, c.Name))
			if c.ResourceVersion != "" {
				fmt.Fprintf(out, "@%s", plain(c.ResourceVersion))
			}
			fmt.Fprintln(out)
		}
		for _, w := range r.Waits {
			to := w.To
			if to.IsZero() {
				to = k.At
			}
			fmt.Fprintf(out, "    waited    %s for %s\n", short(to.Sub(w.From)), plain(string(w.For)))
		}
		for _, w := range r.Writes {
			writeWrite(out, w)
		}
		if r.Where != "" {
			fmt.Fprintf(out, "    at        %s\n", plain(r.Where))
		}
	}
}

func writeWrite(out io.Writer, w status.Write) {
	resource := w.Resource
	if w.Subresource != "" {
		resource += "/" + w.Subresource
	}
	fmt.Fprintf(out, "    wrote     %s %s %s", plain(w.Verb), plain(resource), object(w.Namespace, w.Name))
	switch {
	case w.Lost:
		fmt.Fprint(out, ": the answer was lost")
	case w.Error != nil:
		fmt.Fprintf(out, ": %s", errorText(w.Error))
	case w.ResourceVersion != "":
		fmt.Fprintf(out, "@%s", plain(w.ResourceVersion))
	}
	if len(w.Paths) > 0 {
		fmt.Fprintf(out, ": %s", plain(strings.Join(w.Paths, ", ")))
	}
	if w.PathsUnknown != "" {
		fmt.Fprintf(out, "; changed fields unknown: %s", plain(w.PathsUnknown))
	}
	fmt.Fprintln(out)
}

// stateOfAffairs is equal for two answers of which the second has nothing new.
func stateOfAffairs(k status.Key) string {
	s := fmt.Sprint(k.State, k.Failures, len(k.Runs), len(k.Debts), k.Running != nil, k.Next)
	if n := len(k.Runs); n > 0 {
		s += fmt.Sprint(k.Runs[n-1].Started)
	}
	return s
}

// writeManager writes the controllers and the caches.
func writeManager(out io.Writer, m status.Manager) {
	fmt.Fprintf(out, "%s for %s", plain(string(m.Stage)), since(m.At, m.StageSince))
	if m.WaitsFor != "" {
		fmt.Fprintf(out, ", %s", plain(m.WaitsFor))
	}
	fmt.Fprintln(out)
	switch l := m.Leadership; {
	case l == nil:
	case l.Sharded:
		fmt.Fprintf(out, "Shards %s: all lead, each some of the keys; this is %s\n", plain(l.Lease), plain(l.Identity))
		if l.NotLed != nil {
			fmt.Fprintf(out, "Nobody leads some of the slices: %s\n", errorText(l.NotLed))
		}
	default:
		fmt.Fprintf(out, "Lease %s: %s leads; this is %s\n", plain(l.Lease), plain(cmp.Or(l.Holder, "nobody")),
			plain(l.Identity))
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nREADY\tOLDEST\tRUNNING\tPARKED\tDELAYED\tFAILING\tFAILED\tINVALID\tSTUCK\tHOT\tRUNS\t  "+
		"CONTROLLER")
	for _, c := range m.Controllers {
		fmt.Fprintf(w, "%d\t%s\t%d/%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t  %s\n", c.Ready, short(c.OldestReady),
			c.Running, c.Workers, c.Parked, c.Delayed, c.Failing, c.Failed, c.Invalid, c.Stuck, c.Hot, c.Runs,
			plain(c.Name))
	}
	w.Flush()
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nCACHE\tSTATE\tFOR\tOBJECTS\tBY METADATA\tHEAP\tREASON")
	for _, i := range m.Informers {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", plain(i.Name), plain(i.State), since(m.At, i.Since),
			i.Objects, i.ByMetadata, i.Size(), errorText(i.Reason))
	}
	w.Flush()
}

// writeKeys writes the keys of a controller that need attention.
func writeKeys(out io.Writer, now time.Time, controller string, keys []status.KeySummary) {
	if len(keys) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s\tSTATE\tFOR\tFAILURES\tLAST RUN\tRESULT\n", strings.ToUpper(plain(controller)))
	for _, k := range keys {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", object(k.Namespace, k.Name), plain(string(k.State)),
			since(now, k.Since),
			k.Failures, since(now, k.LastRun), plain(cmp.Or(k.LastResult, "-")))
	}
	w.Flush()
}
