package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// inventions are values that a fork has drawn, where the cluster will draw others: UIDs and generated names of new
// objects, addresses and node ports of Services that name none, and, of a healthy world, the addresses of pods and the
// hashes of pod templates.
type inventions struct {
	swaps
	chosen map[string]bool // addresses and ports that the program itself has asked for
}

// stands is what stands for a drawn value where two runs are compared.
const stands = "*"

func newInventions() *inventions {
	return &inventions{swaps: swapsOf(nil), chosen: make(map[string]bool)}
}

// asked notes the addresses and ports in a Service as the program sends it, before the server adds its own.
func (i *inventions) asked(w reconciletest.BaseWrite) {
	if service, ok := w.New.(*corev1.Service); ok {
		for _, value := range valuesIn(service) {
			i.chosen[value] = true
		}
	}
}

// wrote notes what has been drawn for a write: of an update, what was not there before.
func (i *inventions) wrote(w reconciletest.BaseWrite) {
	if w.New == nil {
		return
	}
	name, prefix := w.New.GetName(), w.New.GetGenerateName()
	prefix = prefix[:min(len(prefix), longestPrefix)]
	if w.Old == nil {
		i.add(string(w.New.GetUID()), stands)
		// A client that gives both gets its name, which is taken for a generated one only if it looks like it.
		if prefix != "" && strings.HasPrefix(name, prefix) && len(name) == len(prefix)+drawnLength {
			i.add(name, i.replaced(prefix, nil)+stands)
		}
	}
	switch o := w.New.(type) {
	case *corev1.Service:
		old, _ := w.Old.(*corev1.Service)
		had := valuesIn(old)
		for _, value := range valuesIn(o) {
			if !i.chosen[value] && !slices.Contains(had, value) {
				i.add(value, stands)
			}
		}
	case *corev1.Pod:
		if old, _ := w.Old.(*corev1.Pod); w.By == worldManager && (old == nil || old.Status.PodIP == "") {
			i.add(o.Status.PodIP, stands)
		}
	}
}

// drawnLength is how long a server makes the end of a generated name, and longestPrefix how much of generateName it
// takes.
const (
	drawnLength   = 5
	longestPrefix = 63 - drawnLength
)

// valuesIn returns the addresses and the node ports of a Service.
func valuesIn(s *corev1.Service) (all []string) {
	if s == nil {
		return nil
	}
	for _, address := range append(slices.Clone(s.Spec.ClusterIPs), s.Spec.ClusterIP) {
		if address != "" && address != corev1.ClusterIPNone {
			all = append(all, address)
		}
	}
	ports := []int32{s.Spec.HealthCheckNodePort}
	for _, p := range s.Spec.Ports {
		ports = append(ports, p.NodePort)
	}
	for _, port := range ports {
		if port != 0 {
			all = append(all, fmt.Sprint(port))
		}
	}
	return all
}

// mark marks a change that shows what has been drawn.
func (i *inventions) mark(c *Change) {
	found := map[string]string{}
	i.replaced(c.Object.Namespace, found)
	i.replaced(c.Object.Name, found)
	c.NameInvented = len(found) > 0
	for at := range c.Fields {
		f := &c.Fields[at]
		here := map[string]string{}
		i.replaced(f.Path, here)
		i.replacedIn(f.Path, f.Old, here)
		i.replacedIn(f.Path, f.New, here)
		f.Invented = len(here) > 0
		maps.Copy(found, here)
	}
	if len(found) > 0 {
		c.Invented = found
	}
}

// withoutInvented returns the change with what stands for each value that the fork has drawn, so that two runs can be
// compared.
func (c Change) withoutInvented() Change {
	d := swapsOf(c.Invented)
	c.Object.Namespace, c.Object.Name = d.replaced(c.Object.Namespace, nil), d.replaced(c.Object.Name, nil)
	c.Fields = slices.Clone(c.Fields)
	for at := range c.Fields {
		f := &c.Fields[at]
		f.Old, f.New = d.replacedIn(f.Path, f.Old, nil), d.replacedIn(f.Path, f.New, nil)
		f.Path = d.replaced(f.Path, nil)
	}
	if c.Restarts != nil {
		r := *c.Restarts
		r.Why = slices.Clone(r.Why)
		for at, path := range r.Why {
			r.Why[at] = d.replaced(path, nil)
		}
		c.Restarts = &r
	}
	return c
}

// swaps are values with what stands for each of them, to be looked for in texts.
type swaps struct {
	stand   map[string]string
	lengths []int // of the values, the longest first: a name may begin with another one
}

func swapsOf(stand map[string]string) swaps {
	d := swaps{stand: make(map[string]string, len(stand))}
	for value, stands := range stand {
		d.add(value, stands)
	}
	return d
}

func (d *swaps) add(value, stands string) {
	if value == "" {
		return
	}
	d.stand[value] = stands
	if !slices.Contains(d.lengths, len(value)) {
		d.lengths = append(d.lengths, len(value))
		slices.SortFunc(d.lengths, func(a, b int) int { return b - a })
	}
}

// replaced returns a text in which other texts stand for the values, and adds those that it has to found, unless that
// is nil.
func (d *swaps) replaced(s string, found map[string]string) string {
	var b strings.Builder
	done := 0
	for i := 0; i < len(s); i++ {
		value := d.at(s, i)
		if value == "" {
			continue
		}
		if found != nil {
			found[value] = d.stand[value]
		}
		b.WriteString(s[done:i] + d.stand[value])
		done = i + len(value)
		i = done - 1
	}
	return b.String() + s[done:]
}

// replacedIn is replaced for the value of a field, whatever it consists of. A number is a node port if the field says
// so.
func (d *swaps) replacedIn(path string, v any, found map[string]string) any {
	switch v := v.(type) {
	case nil, bool:
	case string:
		return d.replaced(v, found)
	case map[string]any:
		all := make(map[string]any, len(v))
		for name, below := range v {
			all[d.replaced(name, found)] = d.replacedIn(join(path, name), below, found)
		}
		return all
	case []any:
		all := make([]any, len(v))
		for at, below := range v {
			all[at] = d.replacedIn(path, below, found)
		}
		return all
	default:
		if strings.HasSuffix(strings.ToLower(path), "nodeport") {
			if s := fmt.Sprint(v); d.replaced(s, found) != s {
				return d.stand[s]
			}
		}
	}
	return v
}

// at returns the value that begins at an index of a text, and is a part of its own there.
func (d *swaps) at(s string, i int) string {
	if len(d.stand) == 0 || !isWord(s[i]) || i > 0 && isWord(s[i-1]) {
		return ""
	}
	for _, n := range d.lengths {
		if i+n > len(s) || i+n < len(s) && isWord(s[i+n]) {
			continue
		}
		if _, ok := d.stand[s[i:i+n]]; ok && standsAlone(s[:i], s[i:i+n], s[i+n:]) {
			return s[i : i+n]
		}
	}
	return ""
}

// standsAlone reports whether an address or a port is not a part of another number: many things are counted with five
// digits, so that a port stands behind a colon, or is all of a text.
func standsAlone(before, value, behind string) bool {
	if _, err := strconv.ParseUint(value, 10, 16); err == nil {
		return before+behind == "" || strings.HasSuffix(before, ":")
	}
	address, err := netip.ParseAddr(value)
	if err != nil {
		return true
	}
	separator, digits := byte('.'), "0123456789"
	if address.Is6() {
		separator, digits = ':', "0123456789abcdefABCDEF:"
	}
	goesOn := len(behind) > 1 && behind[0] == separator && strings.IndexByte(digits, behind[1]) >= 0
	last := len(before) - 1
	begins := last > 0 && before[last] == separator && strings.IndexByte(digits, before[last-1]) >= 0
	return !goesOn && !begins
}

func isWord(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
