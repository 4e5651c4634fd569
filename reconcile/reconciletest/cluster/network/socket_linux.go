package network

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// From linux/sock_diag.h and linux/netlink.h.
const (
	netlinkSockDiag  = 4
	sockDiagByFamily = 20
	noCookie         = ^uint64(0)
)

// diagID names a socket: its own port and address, and those that it is connected to, in network order.
type diagID struct {
	Port, PeerPort       [2]byte
	Address, PeerAddress [16]byte
	Interface            uint32
	Cookie               uint64
}

type diagRequest struct {
	Header                          syscall.NlMsghdr
	Family, Protocol, Extension, No uint8
	States                          uint32
	ID                              diagID
}

type diagAnswer struct {
	Family, State, Timer, Retransmits uint8
	ID                                diagID
	Expires, Received, Sent, UID      uint32
	Inode                             uint32
}

// inodeOf returns the inode of the socket on this machine that has one address and is connected to another one. The
// kernel looks it up by its hash; a look through /proc/net/tcp takes milliseconds.
func inodeOf(local, remote *net.TCPAddr) (inode uint32, err error) {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, netlinkSockDiag)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer syscall.Close(fd)
	request := diagRequest{Family: syscall.AF_INET, Protocol: syscall.IPPROTO_TCP, States: ^uint32(0),
		ID: diagID{Cookie: noCookie}}
	request.Header = syscall.NlMsghdr{Len: uint32(binary.Size(request)), Type: sockDiagByFamily,
		Flags: syscall.NLM_F_REQUEST}
	binary.BigEndian.PutUint16(request.ID.Port[:], uint16(local.Port))
	binary.BigEndian.PutUint16(request.ID.PeerPort[:], uint16(remote.Port))
	copy(request.ID.Address[:], local.IP.To4())
	copy(request.ID.PeerAddress[:], remote.IP.To4())
	var out bytes.Buffer
	if err := binary.Write(&out, binary.NativeEndian, request); err != nil {
		return 0, err
	}
	if err := syscall.Sendto(fd, out.Bytes(), 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return 0, os.NewSyscallError("sendto", err)
	}
	in := make([]byte, 8<<10)
	n, _, err := syscall.Recvfrom(fd, in, 0)
	if err != nil {
		return 0, os.NewSyscallError("recvfrom", err)
	}
	return inodeIn(in[:n])
}

// inodeIn reads the answer of the kernel.
func inodeIn(content []byte) (inode uint32, err error) {
	messages, err := syscall.ParseNetlinkMessage(content)
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		var answer diagAnswer
		if m.Header.Type != sockDiagByFamily {
			continue // NLMSG_ERROR: there is no such socket
		}
		if _, err := binary.Decode(m.Data, binary.NativeEndian, &answer); err != nil {
			return 0, err
		}
		if answer.Inode != 0 {
			return answer.Inode, nil
		}
	}
	return 0, errors.New("there is no such socket")
}

// canTell tries with a connection of this process.
func canTell() error {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	conn, err := net.DialTimeout("tcp4", listener.Addr().String(), 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	inode, err := inodeOf(conn.LocalAddr().(*net.TCPAddr), conn.RemoteAddr().(*net.TCPAddr))
	if err != nil {
		return fmt.Errorf("the kernel does not tell the inode of a socket: %w", err)
	}
	if !owns(os.Getpid(), fmt.Sprintf("socket:[%d]", inode)) {
		return errors.New("/proc/self/fd does not show the sockets of this process")
	}
	return nil
}
