package plan

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// inventions are values that a fork has drawn, where the cluster will draw others: UIDs and generated names of new
// objects, addresses and node ports of Services that name none, and the addresses of a healthy world's pods.
type inventions struct {
	values map[string]bool
	ports  map[string]bool // of nodes, apart from values: any number may be the same
	chosen map[string]bool // addresses and ports that the program itself has asked for
}

func newInventions() *inventions {
	return &inventions{values: make(map[string]bool), ports: make(map[string]bool), chosen: make(map[string]bool)}
}

// asked notes the addresses and ports in a Service as the program sends it, before the server adds its own.
func (i *inventions) asked(w reconciletest.BaseWrite) {
	service, ok := w.New.(*corev1.Service)
	if !ok {
		return
	}
	addresses, ports := drawnIn(service)
	for _, address := range addresses {
		i.chosen[address] = true
	}
	for _, port := range ports {
		i.chosen[port] = true
	}
}

// wrote notes what has been drawn for a write.
func (i *inventions) wrote(w reconciletest.BaseWrite) {
	if w.New == nil {
		return
	}
	if w.Old == nil {
		i.values[string(w.New.GetUID())] = true
		if generated(w.New.GetName(), w.New.GetGenerateName()) {
			i.values[w.New.GetName()] = true
		}
	}
	switch o := w.New.(type) {
	case *corev1.Service:
		addresses, ports := drawnIn(o)
		for _, address := range addresses {
			i.values[address] = i.values[address] || !i.chosen[address]
		}
		for _, port := range ports {
			i.ports[port] = i.ports[port] || !i.chosen[port]
		}
	case *corev1.Pod:
		if w.By == worldManager && o.Status.PodIP != "" {
			i.values[o.Status.PodIP] = true
		}
	}
}

// drawnIn returns the addresses and the node ports of a Service.
func drawnIn(s *corev1.Service) (addresses, ports []string) {
	for _, address := range append(s.Spec.ClusterIPs, s.Spec.ClusterIP) {
		if address != "" && address != corev1.ClusterIPNone {
			addresses = append(addresses, address)
		}
	}
	if s.Spec.HealthCheckNodePort != 0 {
		ports = append(ports, fmt.Sprint(s.Spec.HealthCheckNodePort))
	}
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			ports = append(ports, fmt.Sprint(p.NodePort))
		}
	}
	return addresses, ports
}

// drawnLength is how long a server makes the end of a generated name.
const drawnLength = 5

// generated reports whether a name was made of generateName. A client that gives both a name and generateName gets its
// name, which is taken for a generated one only if it looks like it.
func generated(name, generateName string) bool {
	return generateName != "" && strings.HasPrefix(name, generateName) && len(name) == len(generateName)+drawnLength
}

// mark marks the fields that have a drawn value.
func (i *inventions) mark(fields []Field) {
	for at := range fields {
		f := &fields[at]
		f.Invented = i.has(f.Path, f.New) || i.has(f.Path, f.Old)
	}
}

// has reports whether a drawn value stands anywhere in one, also as a part of a longer text such as an address with a
// port.
func (i *inventions) has(path string, v any) bool {
	switch v := v.(type) {
	case string:
		return i.hasText(v)
	case map[string]any:
		for name, below := range v {
			if i.has(join(path, name), below) {
				return true
			}
		}
	case []any:
		for _, below := range v {
			if i.has(path, below) {
				return true
			}
		}
	default:
		return strings.HasSuffix(strings.ToLower(path), "nodeport") && i.ports[fmt.Sprint(v)]
	}
	return false
}

func (i *inventions) hasText(s string) bool {
	if i.values[s] {
		return s != ""
	}
	separates := func(r rune) bool {
		return r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	for _, word := range strings.FieldsFunc(s, separates) {
		host, _, _ := strings.Cut(word, ".") // a name, and where it is
		if i.values[word] || i.values[host] {
			return true
		}
	}
	return false
}
