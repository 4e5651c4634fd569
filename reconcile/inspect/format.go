package inspect

import (
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// functions are those of the templates.
var functions = template.FuncMap{
	"duration": duration,
	"clock":    clock,
	"stamp":    stamp,
	"count":    count,
	"object":   objectName,
	"keyURL":   keyURL,
	"keysURL":  keysURL,
	"error":    errorText,
	"plain":    plain,
	"tone":     tone,
	"words":    words,
	"resource": resourceName,
	"sub":      func(a, b int) int { return a - b },
}

// duration is how pages show one: two or three digits with a unit, or two units.
func duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", max(d.Microseconds(), 1))
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return twoUnits(d, time.Minute, "min", time.Second, "s")
	case d < 24*time.Hour:
		return twoUnits(d, time.Hour, "h", time.Minute, "min")
	default:
		return twoUnits(d, 24*time.Hour, "d", time.Hour, "h")
	}
}

func twoUnits(d, big time.Duration, bigName string, small time.Duration, smallName string) string {
	if rest := d % big / small; rest > 0 {
		return fmt.Sprintf("%d %s %d %s", d/big, bigName, rest, smallName)
	}
	return fmt.Sprintf("%d %s", d/big, bigName)
}

// clock is a time of day, to the millisecond, in UTC as the API server's times.
func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// stamp is a time with its date.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// count is an int or a uint64 with a comma between thousands.
func count(n any) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// objectName is namespace/name, or the name of an object without a namespace.
func objectName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// resourceName is a resource with its subresource.
func resourceName(resource, subresource string) string {
	if subresource == "" {
		return resource
	}
	return resource + "/" + subresource
}

// keyURL is the page of a key. All links are relative, so that the pages can be served below any path. A name is in
// the query, where it may have any character.
func keyURL(controller, namespace, name string) string {
	return "key?" + url.Values{"controller": {controller}, "namespace": {namespace}, "name": {name}}.Encode()
}

// keysURL is the list of a controller's keys in a state; empty: in any.
func keysURL(controller string, state status.KeyState) string {
	v := url.Values{"controller": {controller}}
	if state != "" {
		v.Set("state", string(state))
	}
	return "keys?" + v.Encode()
}

// plain replaces the characters of a text that turn the direction in which the rest of its line is read.
func plain(text any) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, fmt.Sprint(text))
}

// errorText is an error in a few words. It has the error's text only if the Manager gives that out.
func errorText(e *status.Error) string {
	if e == nil {
		return ""
	}
	s := e.Reason
	if s == "" {
		s = e.Type
	}
	if e.Code != 0 {
		s += " (" + strconv.Itoa(e.Code) + ")"
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return plain(s)
}

// tones are the classes of the style sheet for the states of keys, informers and stages, and for results. What is
// as it should be, and is most of what there is, has none.
var tones = map[string]string{
	"NotStarted": "wait", "Syncing": "wait", "Standby": "wait", "Paused": "wait", "Running": "work", "Stuck": "bad",
	"Parked": "wait", "Ready": "work", "Resting": "wait", "BackingOff": "bad", "Invalid": "bad", "Failed": "bad",
	"Live": "good", "Listing": "wait", "Stale": "bad", "Missing": "bad", "Denied": "bad",
	"Campaigning": "wait", "Handover": "wait", "Working": "good", "Stopping": "wait", "Stopped": "bad",
	"error": "bad", "retry_after": "bad", "terminal": "bad",
	"panic": "bad", "stopped": "wait",
}

func tone(of any) string {
	if t, ok := tones[fmt.Sprint(of)]; ok {
		return t
	}
	return "none"
}

// words are a state's or a result's name as two words: BackingOff is "backing off", retry_after "retry after".
func words(of any) string {
	var b strings.Builder
	for i, r := range fmt.Sprint(of) {
		switch {
		case r == '_':
			b.WriteByte(' ')
		case r >= 'A' && r <= 'Z':
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteRune(r + 'a' - 'A')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// moment is when the data of a page was taken. Its methods are for templates.
type moment struct{ Now time.Time }

// Ago is how long ago t was; a t of zero is shown as nothing.
func (m moment) Ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration(m.Now.Sub(t))
}

// Until is how long it takes until t.
func (m moment) Until(t time.Time) string {
	if !t.After(m.Now) {
		return "now"
	}
	return duration(t.Sub(m.Now))
}
