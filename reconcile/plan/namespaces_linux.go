package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A program that runs isolated is a child of this executable, which begins in namespaces of its own: of users, so that
// no rights are needed; of mounts, in which /run and /var/run are empty but for the files that a pod has; and of the
// network, in which the one address that answers is the fork's. The child makes the socket that the fork listens on
// there, sends it to its parent, and becomes the program. All this is against accidents: it holds no program back that
// wants out.

// entering is the name that the child gets, by which it knows that it is one.
const entering = "plan-isolated-program"

// apart is what the child is told.
type apart struct {
	Address string // of the fork
	Dir     string // of the fork, which the program reads
	Path    string // of the program
}

func init() {
	if len(os.Args) < 2 || os.Args[0] != entering {
		return
	}
	kind, err := unix.GetsockoptInt(parentSocket, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_SEQPACKET {
		return // it has that name by chance
	}
	err = enter(os.Args[1], os.Args[2:])                             // which returns only if it fails
	_ = unix.Sendmsg(parentSocket, []byte(err.Error()), nil, nil, 0) // or there is no parent
	os.Exit(1)
}

const (
	// parentSocket is the file of the child that leads to its parent.
	parentSocket = 3
	// childTime is how long the child may take for each of its messages.
	childTime = 10 * time.Second
)

// startIsolated starts a process in namespaces of its own, in which the fork answers.
func (s *Server) startIsolated(c *exec.Cmd) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	told, err := json.Marshal(apart{s.address().String(), s.dir, c.Path})
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "parent"), os.NewFile(uintptr(pair[1]), "child")
	defer ours.Close()
	c.Path, c.Args = self, append([]string{entering, string(told)}, c.Args...)
	c.ExtraFiles = []*os.File{theirs}
	c.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET
	c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	c.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN} // in the namespaces alone
	err = c.Start()
	theirs.Close()
	if err != nil {
		return mayNot(err)
	}
	if err := s.adopt(ours); err != nil {
		kill(c)
		_ = c.Wait() // it was killed
		return err
	}
	return nil
}

// adopt serves the fork at the socket that the child sends, and waits until the child has become the program.
func (s *Server) adopt(from *os.File) error {
	limit := unix.NsecToTimeval(childTime.Nanoseconds())
	if err := unix.SetsockoptTimeval(int(from.Fd()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return err
	}
	message, rights := make([]byte, 1<<12), make([]byte, unix.CmsgSpace(4))
	n, with, err := receive(from, message, rights)
	if err != nil {
		return fmt.Errorf("the child does not get ready: %w", err)
	}
	controls, err := unix.ParseSocketControlMessage(rights[:with])
	if err != nil || len(controls) != 1 {
		return errors.Join(errors.New(string(message[:n])), err)
	}
	sockets, err := unix.ParseUnixRights(&controls[0])
	if err != nil || len(sockets) != 1 {
		return errors.Join(errors.New("the child has sent no socket"), err)
	}
	file := os.NewFile(uintptr(sockets[0]), "fork")
	defer file.Close()
	listener, err := net.FileListener(file)
	if err != nil {
		return err
	}
	s.group.Go("HTTPS, isolated", func() { _ = s.http.ServeTLS(listener, "", "") }) // which says that it was closed
	n, _, err = receive(from, message, nil)
	if n > 0 { // the program cannot be executed; its start closes the socket
		return errors.New(string(message[:n]))
	}
	return err
}

// receive gets a message of the child. A call that has a limit of time is not repeated by itself after a signal.
func receive(from *os.File, message, rights []byte) (n, with int, err error) {
	for {
		n, with, _, _, err = unix.Recvmsg(int(from.Fd()), message, rights, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			return n, with, err
		}
	}
}

// endWithThis lets the kernel end a process when the thread ends that has started it.
func endWithThis(c *exec.Cmd) { c.SysProcAttr.Pdeathsig = syscall.SIGKILL }

// enter is what the child does.
func enter(told string, args []string) error {
	unix.CloseOnExec(parentSocket)
	var a apart
	if err := json.Unmarshal([]byte(told), &a); err != nil {
		return err
	}
	if err := a.prepare(); err != nil {
		return mayNot(err)
	}
	if err := renounce(); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", a.Path, unix.Exec(a.Path, args, os.Environ()))
}

// renounce gives up what this process may do in its namespaces, also for the program that it becomes, which could undo
// them otherwise. The program of a user other than root keeps nothing that is not inheritable.
func renounce() error {
	if os.Getuid() == 0 { // who gets again what is not dropped for good
		for _, one := range []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN} {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, one, 0, 0, 0); err != nil {
				return err
			}
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	header, sets := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0 // and so none is ambient
	return unix.Capset(&header, &sets[0])
}

// prepare makes the namespaces what the program finds, and sends the socket.
func (a apart) prepare() error {
	if err := a.mount(); err != nil {
		return fmt.Errorf("/var/run: %w", err)
	}
	if err := raiseLoopback(); err != nil {
		return fmt.Errorf("the loopback interface: %w", err)
	}
	listener, err := net.Listen("tcp", a.Address)
	if err != nil {
		return err
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Sendmsg(parentSocket, []byte("ready"), unix.UnixRights(int(file.Fd())), nil, 0)
}

// mount hides /run and /var/run, which have the sockets of other programs and perhaps the token of a pod, and puts in
// the latter what a program in a pod finds there.
func (a apart) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	dir, err := unix.Open(a.Dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	hidden := map[string]bool{}
	for _, name := range []string{"/run", "/var/run"} { // most often one leads to the other
		at, err := filepath.EvalSymlinks(name)
		switch {
		case err != nil && name == "/run" || hidden[at]:
			continue
		case err != nil: // what is made there would be on the disk of the machine
			return err
		}
		hidden[at] = true
		if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return err
		}
	}
	if _, err := os.Stat(a.Dir); os.IsNotExist(err) { // it is hidden, too
		err := os.MkdirAll(a.Dir, 0o700)
		if err == nil {
			err = unix.Mount("/proc/self/fd/"+strconv.Itoa(dir), a.Dir, "", unix.MS_BIND, "")
		}
		if err != nil {
			return err
		}
	}
	account := filepath.Dir(podToken)
	if err := os.MkdirAll(filepath.Dir(account), 0o755); err != nil {
		return err
	}
	return os.Symlink(filepath.Join(a.Dir, accountFolder), account)
}

func raiseLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, loopback)
}

// mayNot says what to do where the namespaces cannot be made. Other errors it leaves alone.
func mayNot(err error) error {
	for _, one := range []error{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EINVAL, unix.ENOSYS} {
		if errors.Is(err, one) {
			return fmt.Errorf("this process may not make namespaces: %w. Allow it (the settings "+
				"user.max_user_namespaces and, where they exist, kernel.unprivileged_userns_clone=1 and "+
				"kernel.apparmor_restrict_unprivileged_userns=0; in a container, a seccomp profile that lets unshare "+
				"and mount pass), or run the program without isolation", err)
		}
	}
	return err
}
