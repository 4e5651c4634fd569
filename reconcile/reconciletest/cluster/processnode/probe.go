package processnode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// prober is the part of a container that runs its probes and hooks.
type prober struct{ *container }

// run runs the postStart hook and the probes of a container until ctx ends.
func (c prober) run(ctx context.Context) {
	spec := c.spec()
	if hooks := spec.Lifecycle; hooks != nil && hooks.PostStart != nil {
		if err := c.hook(ctx, "postStart", *hooks.PostStart); err != nil && ctx.Err() == nil {
			c.end(ending{why: "failed postStart hook: " + err.Error(), grace: grace(c.pod.first, nil)})
			return
		}
	}
	if spec.StartupProbe != nil && !c.repeat(ctx, "startup", spec.StartupProbe, func(ok bool) bool { return !ok }) {
		return
	}
	c.set(func() {
		c.status.Started = new(true)
		c.status.Ready = spec.ReadinessProbe == nil && !c.isInit
	})
	var group lifecycle.Group
	if spec.ReadinessProbe != nil {
		group.Go("readiness", func() {
			c.repeat(ctx, "readiness", spec.ReadinessProbe, func(ok bool) bool {
				c.set(func() { c.status.Ready = ok })
				return true
			})
		})
	}
	if spec.LivenessProbe != nil {
		group.Go("liveness", func() {
			c.repeat(ctx, "liveness", spec.LivenessProbe, func(bool) bool { return true })
		})
	}
	c.pod.pool.complain(context.Background(), group.Wait(unlimited))
}

// set changes the status of the container while its process runs.
func (c prober) set(change func()) {
	c.pod.mu.Lock()
	if c.process != nil {
		change()
	}
	c.pod.mu.Unlock()
	poke(c.pod.changed)
}

// repeat probes until ctx ends, or result returns false, which is called when the result counts: it has come as often
// as the probe's threshold says. Such a failure of a startup or liveness probe ends the process, and the probes with
// it. It returns whether the last result was a success.
func (c prober) repeat(ctx context.Context, kind string, probe *corev1.Probe, result func(ok bool) bool) bool {
	period := time.Duration(max(1, probe.PeriodSeconds)) * time.Second
	lifecycle.Sleep(ctx, time.Duration(probe.InitialDelaySeconds)*time.Second)
	for successes, failures := int32(0), int32(0); ctx.Err() == nil; lifecycle.Sleep(ctx, period) {
		limited, cancel := context.WithTimeout(ctx, time.Duration(max(1, probe.TimeoutSeconds))*time.Second)
		err := c.try(limited, kind, probe.ProbeHandler)
		cancel()
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			failures = 0
			if successes++; successes >= probe.SuccessThreshold && !result(true) {
				return true
			}
			continue
		}
		successes = 0
		failures++
		c.pod.event(corev1.EventTypeWarning, "Unhealthy", kind+" probe failed: ", err)
		if failures < probe.FailureThreshold {
			continue
		}
		if kind != "readiness" {
			c.end(ending{why: "failed " + kind + " probe, will be restarted", grace: grace(c.pod.first, probe)})
			return false
		}
		result(false)
	}
	return false
}

// try probes once. The time that it may take is that of ctx.
func (c prober) try(ctx context.Context, kind string, how corev1.ProbeHandler) error {
	switch {
	case how.Exec != nil:
		_, err := c.exec(ctx, kind, how.Exec.Command)
		return err
	case how.HTTPGet != nil:
		return c.httpGet(ctx, how.HTTPGet)
	default:
		host, err := c.hostPort(how.TCPSocket.Host, how.TCPSocket.Port)
		if err != nil {
			return err
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// hook runs a lifecycle hook.
func (c prober) hook(ctx context.Context, name string, how corev1.LifecycleHandler) error {
	switch {
	case how.Exec != nil:
		_, err := c.exec(ctx, name, how.Exec.Command)
		return err
	case how.HTTPGet != nil:
		return c.httpGet(ctx, how.HTTPGet)
	case how.Sleep != nil:
		lifecycle.Sleep(ctx, time.Duration(how.Sleep.Seconds)*time.Second)
	}
	return nil
}

// hostPort returns the address of a port of the container, by number or name.
func (c prober) hostPort(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		c.pod.mu.Lock()
		host = c.pod.listens
		c.pod.mu.Unlock()
	}
	if port.Type == intstr.Int {
		return net.JoinHostPort(host, strconv.Itoa(port.IntValue())), nil
	}
	for _, p := range c.spec().Ports {
		if p.Name == port.StrVal {
			return net.JoinHostPort(host, strconv.Itoa(int(p.ContainerPort))), nil
		}
	}
	if n, err := strconv.Atoi(port.StrVal); err == nil {
		return net.JoinHostPort(host, strconv.Itoa(n)), nil
	}
	return "", fmt.Errorf("the container has no port %q", port.StrVal)
}

// httpClient trusts every server, and takes a redirection for an answer.
var httpClient = &http.Client{
	Transport: &http.Transport{
		// nolint:gosec // as the kubelet
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (c prober) httpGet(ctx context.Context, get *corev1.HTTPGetAction) error {
	host, err := c.hostPort(get.Host, get.Port)
	if err != nil {
		return err
	}
	path, query, _ := strings.Cut(get.Path, "?")
	u := url.URL{Scheme: strings.ToLower(string(get.Scheme)), Host: host, Path: path, RawQuery: query}
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	for _, h := range get.HTTPHeaders {
		if http.CanonicalHeaderKey(h.Name) == "Host" {
			request.Host = h.Value
		}
		request.Header.Add(h.Name, h.Value)
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode >= 400 {
		return fmt.Errorf("HTTP status %d", response.StatusCode)
	}
	return nil
}

// exec runs a command as the container would, beside its process, and returns its output. If ctx ends first, the
// command is killed. Two commands at the same time need two names.
func (c *container) exec(ctx context.Context, name string, words []string) (string, error) {
	spec := c.spec()
	image, ok := c.pod.pool.o.Images[spec.Image]
	if !ok {
		return "", fmt.Errorf("image %q is not in the Options.Images of this node", spec.Image)
	}
	if len(words) == 0 {
		return "", errors.New("there is no command")
	}
	command, err := c.commandOf(ctx, spec, image, append([]string(nil), words...))
	if err != nil {
		return "", err
	}
	command.Name = c.processName() + "." + name
	process, err := wire{c.pod}.launch(context.WithoutCancel(ctx), command) // see container.start
	if err != nil {
		return "", err
	}
	status, err := process.Wait(ctx)
	if err != nil {
		limited, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = process.Kill(limited) // fails if it has just ended
		_, _ = process.Wait(limited)
	}
	output := consume(process.Log)
	if err == nil && status != "exit status 0" {
		err = fmt.Errorf("%s: %s: %s", words[0], status, strings.TrimSpace(output))
	}
	return output, err
}
