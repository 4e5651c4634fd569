package reconciletest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The ports of the nodes that Services may have. The server draws those before drawnPort when there are no others left:
// they are for clients that choose one.
const (
	firstPort, drawnPort, lastPort = 30000, 30086, 32767
	// dryPort is the first one that a dry run gets, which takes none.
	dryPort = lastPort + 2
)

// ports gives a Service its node ports, and the one for health checks.
func (d *draw) ports() error {
	spec := &d.service.Spec
	if isOnNodes(*spec) {
		open := d.newPorts
		if d.was != nil {
			open = d.morePorts
		}
		if err := open(); err != nil {
			return err
		}
	}
	if !isChecked(*spec) || d.was != nil && isChecked(*d.was) {
		return nil
	}
	if spec.HealthCheckNodePort == 0 {
		port, err := d.nextPort()
		spec.HealthCheckNodePort = port
		return err
	}
	if err := d.takePort(spec.HealthCheckNodePort); err != nil {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate requested HealthCheck NodePort %d: %w",
			spec.HealthCheckNodePort, err))
	}
	return nil
}

// newPorts opens the ports of a new Service. Those of several protocols with one number get one port of the nodes.
func (d *draw) newPorts() error {
	ports := d.service.Spec.Ports
	opened := map[int32]int32{} // by the port of the Service
	for i := range ports {
		p := &ports[i]
		if p.NodePort == 0 && !drawsPorts(d.service.Spec) {
			continue
		}
		chosen, err := p.NodePort, error(nil)
		switch of := opened[p.Port]; {
		case of != 0 && (p.NodePort == 0 || p.NodePort == of):
			p.NodePort = of
			continue
		case of == 0 && chosen == 0:
			chosen = chosenFor(p.Port, ports[i:])
		}
		if chosen == 0 {
			chosen, err = d.nextPort()
		} else if d.takePort(chosen) != nil {
			err = d.cannotOpen(i, chosen)
		}
		if err != nil {
			return err
		}
		p.NodePort = chosen
		if opened[p.Port] == 0 {
			opened[p.Port] = chosen
		}
	}
	return nil
}

// chosenFor returns the port of the nodes that a client has chosen for a port of a Service; 0: it has not.
func chosenFor(port int32, of []corev1.ServicePort) int32 {
	for _, p := range of {
		if p.Port == port && p.NodePort != 0 {
			return p.NodePort
		}
	}
	return 0
}

// morePorts opens those of an update that the Service does not have yet.
func (d *draw) morePorts() error {
	ports := d.service.Spec.Ports
	own, seen := portsOf(*d.was), map[corev1.ServicePort]bool{}
	for i := range ports {
		p := &ports[i]
		switch {
		case p.NodePort == 0 && !drawsPorts(d.service.Spec):
			continue
		case p.NodePort == 0:
			port, err := d.nextPort()
			if err != nil {
				return err
			}
			p.NodePort = port
		case !own[p.NodePort]:
			if d.takePort(p.NodePort) != nil {
				return d.cannotOpen(i, p.NodePort)
			}
			own[p.NodePort] = true
		}
		key := corev1.ServicePort{Protocol: p.Protocol, NodePort: p.NodePort}
		if seen[key] {
			return fmt.Errorf("duplicate nodePort: {%s %d}", p.Protocol, p.NodePort) // 500, as the real server says
		}
		seen[key] = true
	}
	return nil
}

func (d *draw) cannotOpen(i int, port int32) error {
	return d.invalid(field.Invalid(field.NewPath("spec", "ports").Index(i).Child("nodePort"), port,
		"provided port is already allocated, or not in the valid range"))
}

// takePort takes a port that a client has chosen. A dry run may have one that is in no range.
func (d *draw) takePort(port int32) error {
	if !d.dry && !d.free && (port < firstPort || port > lastPort) {
		return errRange
	}
	return d.take(drawn{port: port})
}

// nextPort takes one that nobody has. A dry run gets the one after the last one that it has.
func (d *draw) nextPort() (int32, error) {
	if d.dry {
		next := d.dryPort + 1
		for _, it := range d.own {
			next = max(next, it.port+1)
		}
		if next == 1 {
			next = dryPort
		}
		d.dryPort = next
		return next, nil
	}
	pool := &d.server.services
	pool.mu.Lock()
	defer pool.mu.Unlock()
	candidates := func(yield func(drawn) bool) {
		for _, of := range [][2]int64{{drawnPort, lastPort}, {firstPort, drawnPort - 1}} {
			for port := range around(of[0], of[1], pool.ports) {
				if !yield(drawn{port: int32(port)}) {
					return
				}
			}
		}
	}
	var it drawn
	if !d.firstLocked(candidates, &it) {
		return 0, full("a nodePort")
	}
	pool.ports++
	pool.drewLocked(it)
	return it.port, nil
}

// drawsPorts reports whether a port of a Service gets one of the nodes that nobody has chosen.
func drawsPorts(spec corev1.ServiceSpec) bool {
	draws := spec.AllocateLoadBalancerNodePorts
	return spec.Type == corev1.ServiceTypeNodePort ||
		spec.Type == corev1.ServiceTypeLoadBalancer && (draws == nil || *draws)
}

// portsOf returns the ports of the nodes that a Service names.
func portsOf(spec corev1.ServiceSpec) map[int32]bool {
	all := map[int32]bool{}
	for _, p := range spec.Ports {
		if p.NodePort != 0 {
			all[p.NodePort] = true
		}
	}
	return all
}

// opensPorts reports whether an update names a port of the nodes that the Service did not have.
func opensPorts(spec, was corev1.ServiceSpec) bool {
	had := portsOf(was)
	for port := range portsOf(spec) {
		if !had[port] {
			return true
		}
	}
	return false
}

// keepPorts gives the ports of an update, by their names, the ports of the nodes that it leaves out, unless it names
// them for others.
func keepPorts(spec *corev1.ServiceSpec, was corev1.ServiceSpec) {
	if drawsPorts(*spec) && drawsPorts(was) {
		named, had := portsOf(*spec), map[string]int32{}
		for _, p := range was.Ports {
			had[p.Name] = p.NodePort
		}
		for i := range spec.Ports {
			if p := &spec.Ports[i]; p.NodePort == 0 && !named[had[p.Name]] {
				p.NodePort = had[p.Name]
			}
		}
	}
	if isChecked(*spec) && isChecked(was) {
		orValue(&spec.HealthCheckNodePort, was.HealthCheckNodePort)
	}
}
