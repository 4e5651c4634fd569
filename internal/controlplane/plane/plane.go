package plane

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/thermostat-go/thermostat/internal/controlplane/supervisor"
)

// Plane is one control plane below a supervisor.
type Plane struct {
	dir        string
	binary     string // has the components as subcommands
	supervisor *supervisor.Supervisor

	// Guarded by mu, which Up holds until it is done.
	mu sync.Mutex
	up bool

	// Written by Up before it starts the first process, and read only after that.
	apiserver, controllerManager *port
	controllers                  []string
}

// New returns a control plane that keeps its data in dir.
func New(dir, binary string, s *supervisor.Supervisor) *Plane {
	return &Plane{dir: dir, binary: binary, supervisor: s}
}

// Handlers are the operations that a control plane adds to its supervisor's:
//
//	up     make keys, choose ports, start the three components, of which the controller manager runs Controllers (none
//	       named: all that are on by default), wait until they are ready
//	ready  wait until the component Name is ready, or, without Name, all three
func (p *Plane) Handlers() map[string]supervisor.Handler {
	return map[string]supervisor.Handler{
		"up": func(ctx context.Context, r supervisor.Request) (supervisor.Message, error) {
			if err := p.Up(ctx, r.Controllers); err != nil {
				return supervisor.Message{}, err
			}
			return supervisor.Message{Dir: p.dir, Server: p.server(), Kubeconfig: p.kubeconfig("admin")}, nil
		},
		"ready": func(ctx context.Context, r supervisor.Request) (supervisor.Message, error) {
			return supervisor.Message{}, p.ready(ctx, r.Name)
		},
	}
}

// Up starts the control plane and waits until it is ready. The controllers are those of [supervisor.Request].
func (p *Plane) Up(ctx context.Context, controllers []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.up {
		return errors.New("this control plane is up already")
	}
	if p.controllers = controllers; len(controllers) == 0 {
		p.controllers = []string{"*"}
	}
	a, err := p.issueAll()
	if err != nil {
		return err
	}
	// Reserved ports can still be taken by a program that knows nothing of reservations, in the moment before we
	// listen.
	for attempt := 1; ; attempt++ {
		err := p.start(ctx, a)
		if err == nil {
			p.up = true
			return nil
		}
		if attempt == 3 || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
			return err
		}
		for _, name := range components {
			_, _ = p.supervisor.End(ctx, name, syscall.SIGKILL) // fails when it is not running, which is the aim
		}
	}
}

func (p *Plane) issueAll() (*authority, error) {
	a, err := newAuthority(filepath.Join(p.dir, "pki"))
	if err != nil {
		return nil, err
	}
	if _, err := writeKey(filepath.Join(a.dir, "service-account.key")); err != nil {
		return nil, fmt.Errorf("make the key of service account tokens: %w", err)
	}
	return a, errors.Join(
		a.serving("apiserver", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"),
		a.serving("controller-manager-serving"),
		a.client("controller-manager", "system:kube-controller-manager"),
		a.client(frontProxy, frontProxy),
		a.client("admin", "thermostat-admin", "system:masters"),
	)
}

// start is one attempt: new ports, the kubeconfigs that name them, and the components one after the other.
func (p *Plane) start(ctx context.Context, a *authority) error {
	p.apiserver.release()
	p.controllerManager.release()
	var err error
	if p.apiserver, err = reservePort(); err != nil {
		return err
	}
	if p.controllerManager, err = reservePort(); err != nil {
		return err
	}
	for _, user := range []string{"admin", "controller-manager"} {
		if err := a.writeKubeconfig(p.kubeconfig(user), p.server(), user); err != nil {
			return err
		}
	}
	for _, name := range components {
		if _, err := p.supervisor.Start(p.spec(name)); err != nil {
			return err
		}
		if err := p.Ready(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plane) ready(ctx context.Context, component string) error {
	p.mu.Lock()
	up := p.up
	p.mu.Unlock()
	if !up {
		return errors.New("the control plane is not up")
	}
	if component != "" {
		if p.probes(component) == nil {
			return fmt.Errorf("%q is no component of the control plane: there are %s", component,
				strings.Join(components, ", "))
		}
		return p.Ready(ctx, component)
	}
	for _, name := range components {
		if err := p.Ready(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plane) server() string { return fmt.Sprintf("https://127.0.0.1:%d", p.apiserver.number) }

func (p *Plane) kubeconfig(user string) string { return filepath.Join(p.dir, user+".kubeconfig") }
