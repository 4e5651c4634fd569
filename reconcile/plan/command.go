package plan

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/internal/planned"
)

// Command is a program that runs as a process.
type Command struct {
	// Args are the path of the program, or its name in PATH, and its arguments. {kubeconfig} in one of them stands for
	// the path of a kubeconfig that leads to the fork.
	Args []string
	// Output gets what it prints. Nil: nobody does.
	Output io.Writer
	// Isolated: it runs in a network of its own, in which nothing answers but the fork, and finds the files that a
	// program in a pod finds, at /var/run/secrets/kubernetes.io, and nothing else in /run and /var/run. Linux only. The
	// executable that calls RunCommand is started again for that, and becomes the program in an init function.
	Isolated bool
}

// RunCommand is [Run] for a program that is a process: it is ended with SIGTERM and, 10 s later, killed. It finds the
// fork by KUBECONFIG, or as ~/.kube/config: HOME is a folder with nothing else, lest the program finds the cluster
// there. Variables that begin with KUBE or HELM_KUBE are not passed on. Arguments that name the cluster or a kubeconfig
// other than {kubeconfig} are refused, variables that do are not passed on either, and a pod that has a token for its
// cluster is refused, unless the program is isolated.
//
// A program that is not isolated, and is given the address of the cluster in another way, such as by a configuration
// file, is not kept from writing to it. On Linux the report says what it was connected to.
func RunCommand(ctx context.Context, base *rest.Config, c Command, o RunOptions) (report *Report, err error) {
	if len(c.Args) == 0 {
		return nil, errors.New("plan: no program is named")
	}
	if err := judge(c.Args[1:], base.Host); err != nil {
		return nil, err
	}
	if _, err := os.Stat(podToken); err == nil && !c.Isolated {
		return nil, fmt.Errorf("plan: this process runs in a pod with the token %s, by which the program may find the "+
			"cluster: run it isolated, or in a pod with automountServiceAccountToken: false", podToken)
	}
	fork, err := Fork(ctx, base, o.Options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fork.Close()) }()
	process, err := fork.command(c, base.Host)
	if err != nil {
		return nil, err
	}
	running, end := context.WithCancel(ctx)
	var group lifecycle.Group
	var failed error
	begun := make(chan error, 1)
	group.Go("program", func() {
		defer end()
		runtime.LockOSThread() // since the process ends with this thread, which ends with this goroutine
		failed = fork.begin(process, c.Isolated, o.Account)
		if begun <- failed; failed == nil {
			failed = process.Wait()
		}
	})
	if err := <-begun; err != nil {
		return nil, err
	}
	others := newConnections(process.Process.Pid, fork.address())
	if !c.Isolated {
		group.Go("connections", func() {
			for others.look(); lifecycle.Sleep(running, betweenLooks); {
				others.look()
			}
		})
	}
	report, err = settle(ctx, running, fork, o, func() error {
		stop(process, group.Done())
		return failed
	})
	if report != nil {
		report.Setup.Isolated = c.Isolated
		report.Program, report.Elsewhere = filepath.Base(c.Args[0]), others.all()
		if report.ElsewhereUnknown = ""; !c.Isolated {
			report.ElsewhereUnknown = others.unknown()
		}
	}
	return report, err
}

// betweenLooks is the time between two looks at what a program is connected to. Each reads a file of every process.
const betweenLooks = 250 * time.Millisecond

// command is a program that finds the fork, and not the cluster's host.
func (s *Server) command(c Command, host string) (*exec.Cmd, error) {
	home, err := s.home()
	if err != nil {
		return nil, err
	}
	process := exec.Command(c.Args[0])
	for _, arg := range c.Args[1:] {
		process.Args = append(process.Args, strings.ReplaceAll(arg, placeholder, s.Kubeconfig()))
	}
	process.Stdout, process.Stderr = c.Output, c.Output
	process.Env = environment(os.Environ(), host, s.Kubeconfig(), home)
	process.WaitDelay = stopGrace // of a process of the program's own that goes on, and holds the output
	together(process)
	endWithThis(process)
	if _, err := exec.LookPath(c.Args[0]); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return process, nil
}

// begin starts a program.
func (s *Server) begin(process *exec.Cmd, isolated bool, account string) error {
	if !isolated {
		if err := process.Start(); err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		return nil
	}
	process.Env = append(slices.DeleteFunc(process.Env, leadsOut), "KUBERNETES_SERVICE_HOST="+s.address().IP.String(),
		fmt.Sprint("KUBERNETES_SERVICE_PORT=", s.address().Port))
	if err := s.accountFiles(account); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if err := s.startIsolated(process); err != nil {
		return fmt.Errorf("plan: isolated: %w", err)
	}
	return nil
}

// leadsOut reports whether a variable names what an isolated program cannot reach, or should not: a proxy, or a socket.
func leadsOut(variable string) bool {
	name, _, _ := strings.Cut(strings.ToUpper(variable), "=")
	return strings.HasSuffix(name, "_PROXY") || strings.HasSuffix(name, "_SOCK") || strings.HasPrefix(name, "DBUS_") ||
		name == "DOCKER_HOST" || name == "CONTAINER_HOST"
}

// accountFolder is the one that a program in a pod finds, in the folder of the fork.
const accountFolder = "serviceaccount"

// accountFiles writes what a program in a pod finds: the token, the CA, and the namespace of its account.
func (s *Server) accountFiles(account string) error {
	folder := filepath.Join(s.dir, accountFolder)
	namespace, _, ok := strings.Cut(account, "/")
	if !ok {
		namespace = "default"
	}
	err := os.Mkdir(folder, 0o700)
	for name, content := range map[string][]byte{"token": []byte(s.config.BearerToken),
		"ca.crt": s.config.CAData, "namespace": []byte(namespace)} {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	return err
}

// placeholder stands for the kubeconfig of the fork in an argument.
const placeholder = "{kubeconfig}"

// podToken is where a program in a pod finds the token for its cluster. Some clients look there first, and take a name
// for the address that always leads to the cluster.
const podToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// leading are the flags by which programs are told where their cluster is.
var leading = []string{"kubeconfig", "kube-config", "kubeconfig-path", "master", "apiserver", "api-server", "server"}

// judge refuses arguments that would lead a program past the fork: the flags of leading with another value than the
// placeholder, and whatever names the host of the cluster or a kubeconfig.
func judge(args []string, server string) error {
	host, port := hostAndPort(server)
	values := valuesOf(args)
	apart := slices.Contains(values, port) // the host may stand in another argument
	for i, arg := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		past := strings.HasPrefix(arg, "-") && slices.Contains(leading, strings.ToLower(name)) &&
			values[i] != placeholder
		if past || names(arg, server) || isKubeconfig(values[i]) || apart && values[i] == host {
			return fmt.Errorf("plan: the argument %s leads past the fork: leave it out, or write %s for its value",
				arg, placeholder)
		}
	}
	return nil
}

// valuesOf returns the value of each argument: that of a flag, which may be the next argument, or the argument itself.
func valuesOf(args []string) (values []string) {
	for i, arg := range args {
		_, value, given := strings.Cut(arg, "=")
		switch isFlag := strings.HasPrefix(arg, "-"); {
		case !isFlag:
			value = arg
		case !given && i+1 < len(args):
			value = args[i+1]
		}
		values = append(values, value)
	}
	return values
}

// names reports whether a text has the address of the cluster: its host, with the port unless that is the usual one.
func names(text, server string) bool {
	host, port := hostAndPort(server)
	if host == "" {
		return false
	}
	address := regexp.QuoteMeta(host)
	if strings.Contains(host, ":") {
		address = `\[?` + address + `\]?`
	}
	end := `:` + port + `($|[^\w.-])`
	if port == usualPort(server) {
		end = `(:` + port + `)?($|[^\w.:-]|:($|\D))` // no other port
	}
	return regexp.MustCompile(`(?i)(^|[^\w.-])` + address + end).MatchString(text)
}

// usualPort is the one of a URL that names none.
func usualPort(server string) string {
	if strings.HasPrefix(strings.ToLower(server), "http://") {
		return "80"
	}
	return "443"
}

// hostAndPort are those of the address of a cluster.
func hostAndPort(server string) (host, port string) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return server, usualPort(server)
	}
	return u.Hostname(), cmp.Or(u.Port(), usualPort(server))
}

// isKubeconfig reports whether a value is the path of a kubeconfig.
func isKubeconfig(value string) bool {
	info, err := os.Stat(value)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
		return false
	}
	data, err := os.ReadFile(value)
	return err == nil && bytes.Contains(data, []byte("current-context")) && bytes.Contains(data, []byte("clusters"))
}

// home makes a home folder in which a program finds the fork.
func (s *Server) home() (string, error) {
	folder := filepath.Join(s.dir, "home", ".kube")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	return filepath.Dir(folder), os.Symlink(s.Kubeconfig(), filepath.Join(folder, "config"))
}

// environment is that of a program which is to find the fork and nothing else.
func environment(all []string, server, kubeconfig, home string) (env []string) {
	apart := hostsAndPorts(all, server)
	direct, proxied := map[string]string{}, false
	for _, one := range all {
		name, value, _ := strings.Cut(one, "=")
		if strings.EqualFold(name, "NO_PROXY") { // which leads nowhere
			direct[name] = value
			continue
		}
		proxied = proxied || strings.HasSuffix(strings.ToUpper(name), "_PROXY") && value != ""
		leads := strings.HasPrefix(name, "KUBE") || strings.HasPrefix(name, "HELM_KUBE") || // of clients of all kinds
			names(value, server) || isKubeconfig(value) || apart[name]
		if !leads && name != "HOME" && name != "USERPROFILE" {
			env = append(env, one)
		}
	}
	if proxied || len(direct) > 0 { // or a client asks the proxy for the fork: some know only one of the two names
		for _, name := range [][2]string{{"NO_PROXY", "no_proxy"}, {"no_proxy", "NO_PROXY"}} {
			value := cmp.Or(direct[name[0]], direct[name[1]])
			env = append(env, name[0]+"="+strings.TrimPrefix(value+","+loopback, ","))
		}
	}
	return append(env, "KUBECONFIG="+kubeconfig, "HOME="+home, "USERPROFILE="+home,
		planned.Variable+"="+kubeconfig)
}

// hostsAndPorts returns the variables that name a cluster together: one has the host, another one of the same prefix
// the port, as API_HOST and API_PORT do.
func hostsAndPorts(all []string, server string) map[string]bool {
	host, port := hostAndPort(server)
	withHost, withPort := map[string][]string{}, map[string][]string{}
	for _, one := range all {
		name, value, _ := strings.Cut(one, "=")
		prefix := strings.ToUpper(name[:max(0, strings.LastIndexByte(name, '_'))])
		switch value {
		case host:
			withHost[prefix] = append(withHost[prefix], name)
		case port:
			withPort[prefix] = append(withPort[prefix], name)
		}
	}
	apart := map[string]bool{}
	for prefix, names := range withHost {
		if ports := withPort[prefix]; len(ports) > 0 {
			for _, name := range append(names, ports...) {
				apart[name] = true
			}
		}
	}
	return apart
}

// stop ends a process and those that it has started, and waits for it.
func stop(c *exec.Cmd, ended <-chan struct{}) {
	terminate(c)
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
	kill(c)
	<-ended
}
