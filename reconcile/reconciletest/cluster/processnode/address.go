package processnode

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"

	corev1 "k8s.io/api/core/v1"
)

const (
	hostIP = "127.0.0.1"
	// reservedPort is the UDP port on which the owner of an address listens, so that no other process on this machine
	// takes the address. The kernel frees it when the owner dies.
	reservedPort = 10249
)

// address is a loopback address that this process has reserved.
type address struct {
	ip   string
	held net.PacketConn
}

// addresses are those of a pool by their keys, see addressKey.
type addresses map[string]address

// of returns the address of a pod, and reserves one at the first call. It belongs to the pod, or, if the pod has a name
// in the DNS, to that name: a later pod of that name gets it again.
func (a addresses) of(pod *corev1.Pod) (string, error) { return a.get(addressKey(pod)) }

func (a addresses) get(key string) (string, error) {
	if known, ok := a[key]; ok {
		return known.ip, nil
	}
	var failed error
	for range 100 {
		ip := fmt.Sprintf("127.%d.%d.%d", 16+rand.IntN(224), rand.IntN(256), 1+rand.IntN(254))
		held, err := net.ListenPacket("udp4", fmt.Sprintf("%s:%d", ip, reservedPort))
		if err == nil {
			a[key] = address{ip, held}
			return ip, nil
		}
		failed = errors.Join(failed, err)
	}
	return "", fmt.Errorf("reserve an address for the pod: %w", failed)
}

// behind returns the address on which the processes of a pod listen while the network has the one of the pod.
func (a addresses) behind(pod *corev1.Pod) (string, error) { return a.get("behind " + addressKey(pod)) }

// addressKey is the DNS name that a headless Service would give to the pod, or else its UID.
func addressKey(pod *corev1.Pod) string {
	if pod.Spec.Hostname != "" && pod.Spec.Subdomain != "" {
		return pod.Spec.Hostname + "." + pod.Spec.Subdomain + "." + pod.Namespace
	}
	return string(pod.UID)
}

// release gives up the address of a pod that is gone, unless it belongs to a DNS name.
func (a addresses) release(pod *corev1.Pod) {
	for _, key := range []string{string(pod.UID), "behind " + string(pod.UID)} {
		if known, ok := a[key]; ok {
			known.held.Close()
			delete(a, key)
		}
	}
}
