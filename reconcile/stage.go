package reconcile

import (
	"sync"
	"time"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// progressOfRun is what Manager.Run is doing, for those who ask.
type progressOfRun struct {
	mu sync.Mutex
	// Guarded by mu.
	stage          status.Stage // empty: Run has not been called
	started, since time.Time
	tenures        int
	tenureSince    time.Time
	handover       string
	handoverTook   time.Duration
}

// enter begins a stage.
func (p *progressOfRun) enter(s status.Stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Now()
	if p.stage == "" {
		p.started = p.since
	}
	p.stage = s
	switch s {
	case status.StageHandover:
		p.tenures++
		p.tenureSince, p.handover, p.handoverTook = p.since, "", 0
	case status.StageCampaigning:
		p.tenureSince = time.Time{}
	}
}

// caughtUp records how the wait for the last leader's writes has ended.
func (p *progressOfRun) caughtUp(complete bool, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handover, p.handoverTook = "complete", took
	if !complete {
		p.handover = "incomplete"
	}
}

// now returns the stage, since when it lasts, and when Run was called.
func (p *progressOfRun) now() (stage status.Stage, since, started time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stage == "" {
		return status.StageNotStarted, time.Time{}, time.Time{}
	}
	return p.stage, p.since, p.started
}

// inspectedElector is the part of an [Elector] that [Manager.Inspect] asks; *leaderelection.Elector has it.
type inspectedElector interface {
	String() string // namespace/name of the Lease
	Identity() string
	IsLeader() bool
	// Observed returns what this process has last seen of the Lease; known is false if there is none.
	Observed() (holder string, transitions int, since time.Time, known bool)
}

// leadership returns what the Elector says, or nil without one.
func (m *Manager) leadership() *status.Leadership {
	if m.opts.Elector == nil {
		return nil
	}
	m.progress.mu.Lock()
	s := &status.Leadership{Tenures: m.progress.tenures, TenureSince: m.progress.tenureSince,
		Handover: m.progress.handover, HandoverTook: m.progress.handoverTook}
	m.progress.mu.Unlock()
	s.Leading = !s.TenureSince.IsZero()
	if e, ok := m.opts.Elector.(inspectedElector); ok {
		s.Lease, s.Identity, s.Leading = e.String(), e.Identity(), e.IsLeader()
		s.Holder, s.Transitions, s.HolderSince, _ = e.Observed()
	}
	if m.shards != nil {
		s.Sharded, s.Lease, s.Identity = true, m.shards.String(), m.shards.Identity()
		s.NotLed = status.ErrorOf(m.shards.Health(), true) // it quotes nothing but numbers and the table's name
	}
	if e, ok := m.opts.Elector.(interface{ Ready() error }); ok {
		s.NotReady = status.ErrorOf(e.Ready(), m.opts.ErrorTexts)
	}
	return s
}
