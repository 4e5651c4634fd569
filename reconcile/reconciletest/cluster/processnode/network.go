package processnode

import (
	"context"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/network"
)

// wire is the part of a pod worker that connects the pod with others.
type wire struct{ *podWorker }

// takeAddress gives the pod its address. Without a network the processes listen on it; with one the network does, and
// the processes listen on an address behind it. It may be called again after an error.
func (w wire) takeAddress(pod *corev1.Pod) (err error) {
	w.pool.mu.Lock()
	ip, err := w.pool.addresses.of(pod)
	listens := ip
	if err == nil && w.pool.o.Network != nil {
		listens, err = w.pool.addresses.behind(pod)
	}
	w.pool.mu.Unlock()
	if err != nil {
		return err
	}
	if listens != ip && len(w.ports) == 0 {
		if err := w.openPorts(pod, ip, listens); err != nil {
			w.closePorts()
			return err
		}
	}
	w.mu.Lock()
	w.ip, w.listens = ip, listens
	w.mu.Unlock()
	poke(w.changed)
	return nil
}

// openPorts has the network listen on the TCP ports that the containers name.
func (w wire) openPorts(pod *corev1.Pod, ip, listens string) error {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
				continue
			}
			number := strconv.Itoa(int(p.ContainerPort))
			port, err := w.pool.o.Network.Listen(w.end(), net.JoinHostPort(ip, number),
				net.JoinHostPort(listens, number))
			if err != nil {
				return fmt.Errorf("port %s of container %s: %w", number, c.Name, err)
			}
			w.ports = append(w.ports, port)
		}
	}
	return nil
}

func (w wire) closePorts() {
	for _, port := range w.ports {
		port.Close()
	}
	w.ports = nil
}

// end is what the pod is in the network.
func (w wire) end() network.End {
	return network.Pod(types.NamespacedName{Namespace: w.first.Namespace, Name: w.first.Name})
}

// listensAt is the address on which the processes listen.
func (w wire) listensAt() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listens
}

// launch starts a process of the pod.
func (w wire) launch(ctx context.Context, command cluster.Command) (*cluster.Process, error) {
	start := func() (*cluster.Process, error) { return w.pool.cluster.Run(ctx, command) }
	if w.pool.o.Network == nil {
		return start()
	}
	return w.pool.o.Network.Start(w.end(), start)
}
