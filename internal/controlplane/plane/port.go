package plane

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are drawn from below the range from which systems take the local ports of outgoing connections (32768 on Linux,
// 49152 elsewhere): a server that a test keeps down for half a minute must find its port free when it comes back.
const (
	firstPort = 20000
	lastPort  = 32000
)

// port is a TCP port of the loopback interface that no other control plane will choose. The reservation is the UDP port
// of the same number, which the supervisor holds: the two number spaces are separate, only one process can hold it, and
// it is free again the moment its holder dies.
type port struct {
	number      int
	reservation net.PacketConn
}

func reservePort() (*port, error) {
	var last error
	for range 200 {
		number := firstPort + rand.IntN(lastPort-firstPort)
		p, err := tryPort(number)
		if err == nil {
			return p, nil
		}
		last = err
	}
	return nil, fmt.Errorf("find a free port between %d and %d on 127.0.0.1: %w", firstPort, lastPort, last)
}

func tryPort(number int) (*port, error) {
	address := fmt.Sprintf("127.0.0.1:%d", number)
	reservation, err := net.ListenPacket("udp4", address)
	if err != nil {
		return nil, err
	}
	// A program that knows nothing of reservations may listen here.
	probe, err := net.Listen("tcp4", address)
	if err != nil {
		reservation.Close()
		return nil, err
	}
	probe.Close()
	return &port{number, reservation}, nil
}

func (p *port) release() {
	if p != nil {
		p.reservation.Close()
	}
}
