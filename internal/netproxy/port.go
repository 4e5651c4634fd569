package netproxy

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// reservations are the UDP sockets of ReservePort: a socket that nothing refers to would be closed.
var reservations struct {
	mu  sync.Mutex
	all []net.PacketConn // guarded by mu
}

// ReservePort returns a TCP port of 127.0.0.1 for a server that another process is to run. As a cluster does, it draws
// one from below the ports of outgoing connections and of listeners on port 0, one of which could take a port that was
// merely free a moment ago. Nobody else who reserves ports gets it until this process ends: the UDP port of that number
// is the reservation.
func ReservePort() (int, error) {
	var last error
	for range 200 {
		port := 20000 + rand.IntN(12000)
		if last = reserve(port); last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("reserve a port: %w", last)
}

func reserve(port int) error {
	address := fmt.Sprintf("127.0.0.1:%d", port)
	reservation, err := net.ListenPacket("udp4", address)
	if err != nil {
		return err
	}
	free, err := net.Listen("tcp4", address)
	if err != nil {
		reservation.Close()
		return err
	}
	free.Close()
	reservations.mu.Lock()
	defer reservations.mu.Unlock()
	reservations.all = append(reservations.all, reservation)
	return nil
}
