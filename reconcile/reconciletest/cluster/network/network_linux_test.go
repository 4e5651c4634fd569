package network

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// dialVariable makes this test binary a client that copies its input to a server, and what the server sends to its
// output.
const dialVariable = "NETWORK_TEST_DIAL"

func TestMain(m *testing.M) {
	address := os.Getenv(dialVariable)
	if address == "" {
		os.Exit(m.Run())
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _, _ = io.Copy(os.Stdout, conn) }()
	_, _ = io.Copy(conn, os.Stdin)
	_ = conn.(*net.TCPConn).CloseWrite()
	<-done
}

// stage is a network with a server that sends back what it gets.
type stage struct {
	*testing.T
	*Network
	port     *Port
	accepted chan net.Addr
}

func newStage(t *testing.T) *stage {
	n, err := New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	server, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	s := &stage{t, n, nil, make(chan net.Addr, 100)}
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			s.accepted <- conn.RemoteAddr()
			go func() { defer conn.Close(); _, _ = io.Copy(conn, conn) }()
		}
	}()
	s.port, err = n.Listen("server", "127.0.0.1:0", server.Addr().String())
	require.NoError(t, err)
	return s
}

// client is a process, or a connection of the test itself.
type client struct {
	t   *testing.T
	in  io.WriteCloser
	out chan byte // closed at the end
}

func newClient(t *testing.T, in io.WriteCloser, out io.Reader) *client {
	c := &client{t, in, make(chan byte, 1<<20)}
	go func() {
		defer close(c.out)
		buffer := make([]byte, 1)
		for {
			if _, err := io.ReadFull(out, buffer); err != nil {
				return
			}
			c.out <- buffer[0]
		}
	}()
	return c
}

// outside is a client in this process.
func (s *stage) outside() *client {
	conn, err := net.Dial("tcp", s.port.Address())
	require.NoError(s, err)
	s.Cleanup(func() { conn.Close() })
	return newClient(s.T, conn, conn)
}

// process is a client that is an end, started by a command: the binary, or a shell that starts it.
func (s *stage) process(end End, command ...string) *client {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), dialVariable+"="+s.port.Address())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	require.NoError(s, err)
	out, err := cmd.StdoutPipe()
	require.NoError(s, err)
	s.starting.RLock()
	require.NoError(s, cmd.Start())
	s.own(known{end, cmd.Process.Pid, nil})
	s.starting.RUnlock()
	s.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return newClient(s.T, in, out)
}

func (c *client) send(text string) {
	_, err := c.in.Write([]byte(text))
	require.NoError(c.t, err)
}

// gets waits for what the server sends back.
func (c *client) gets(want string) {
	c.t.Helper()
	for i := range want {
		select {
		case got, ok := <-c.out:
			require.True(c.t, ok, "the connection has ended")
			require.Equal(c.t, want[i], got)
		case <-time.After(time.Minute):
			c.t.Fatalf("%q does not come", want[i:])
		}
	}
}

// silent says that nothing comes for a while.
func (c *client) silent() {
	c.t.Helper()
	select {
	case got, ok := <-c.out:
		c.t.Fatalf("got %q, %v", got, ok)
	case <-time.After(200 * time.Millisecond):
	}
}

func TestACutIsBetweenTwoEnds(t *testing.T) {
	binary, err := os.Executable()
	require.NoError(t, err)
	for what, command := range map[string][]string{
		"a process": {binary}, "its child": {"sh", "-c", `"$0"; true`, binary},
	} {
		for _, w := range []way{{"client", "server"}, {"server", "client"}} {
			t.Run(what+", from "+string(w.from), func(t *testing.T) {
				s := newStage(t)
				client, other := s.process("client", command...), s.outside()
				client.send("a")
				client.gets("a")
				first, second := s.Cut(w.from, w.to), s.Cut(w.from, w.to)
				client.send("b")
				client.silent()
				other.send("other")
				other.gets("other")
				first()
				client.silent()
				second()
				client.gets("b")
				second()
				client.send("c")
				client.gets("c")
			})
		}
	}
}

func TestAConnectionThatBeginsDuringACut(t *testing.T) {
	for _, w := range []way{{Outside, "server"}, {"server", Outside}} {
		s := newStage(t)
		heal := s.Cut(w.from, w.to)
		stays, leaves := s.outside(), s.outside()
		stays.send("a")
		leaves.send("b")
		stays.silent()
		require.NoError(t, leaves.in.(*net.TCPConn).CloseWrite())
		_, ok := <-leaves.out
		require.False(t, ok, "the proxy has forgotten it")
		require.Empty(t, s.accepted)
		heal()
		stays.gets("a")
		require.Len(t, s.accepted, 1, "the server has not heard of the one that left")
	}
}

func TestDelay(t *testing.T) {
	s := newStage(t)
	c := s.outside()
	c.send("a")
	c.gets("a")
	heal := []func(){s.Delay(Outside, "server", 100*time.Millisecond), s.Delay(Outside, "server", 50*time.Millisecond),
		s.Delay("server", Outside, 30*time.Millisecond)}
	began := time.Now()
	c.send("b")
	c.send("c")
	c.gets("bc")
	require.GreaterOrEqual(t, time.Since(began), 180*time.Millisecond)
	<-s.accepted
	began = time.Now()
	s.outside()
	<-s.accepted
	require.GreaterOrEqual(t, time.Since(began), 180*time.Millisecond, "a handshake takes both delays")
	for _, h := range heal {
		h()
	}
	c.send("d")
	c.gets("d")
}

func TestNoByteIsLost(t *testing.T) {
	s := newStage(t)
	conn, err := net.Dial("tcp", s.port.Address())
	require.NoError(t, err)
	defer conn.Close()
	sent := make([]byte, 16<<20)
	_, _ = rand.Read(sent)
	heal := s.Cut("server", Outside)
	time.AfterFunc(50*time.Millisecond, heal)
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.True(t, bytes.Equal(sent, got), "%d bytes of %d", len(got), len(sent))
}

func TestAServerThatIsDown(t *testing.T) {
	s := newStage(t)
	// Nothing else on this machine takes a port of this address when it is free for a moment.
	port, err := s.Listen("down", "127.77.1.3:0", "127.0.0.1:1")
	require.NoError(t, err)
	s.port = port
	_, ok := <-s.outside().out
	require.False(t, ok, "the connection ends")
	port.Close()
	_, err = net.Dial("tcp", port.Address())
	require.Error(t, err)
	again, err := s.Listen("down", port.Address(), "127.0.0.1:1")
	require.NoError(t, err)
	require.Equal(t, port.Address(), again.Address())
	_, err = s.Listen("down", port.Address(), "127.0.0.1:1")
	require.ErrorContains(t, err, `listen for "down"`)
	_, err = s.Listen("down", "127.0.0.1:0", "nowhere")
	require.ErrorContains(t, err, "target")
}

func TestTheServerSeesTheAddressOfItsClient(t *testing.T) {
	s := newStage(t)
	pod := Pod(types.NamespacedName{Namespace: "default", Name: "a-1"})
	require.Equal(t, End("default/a-1"), pod)
	_, err := s.Listen(pod, "127.77.1.2:0", "127.0.0.1:1")
	require.NoError(t, err)
	binary, err := os.Executable()
	require.NoError(t, err)
	c := s.process(pod, binary)
	c.send("a")
	c.gets("a")
	require.Equal(t, "127.77.1.2", (<-s.accepted).(*net.TCPAddr).IP.String())
}
