package status

import "time"

// Manager is what a Manager looks like at one moment.
type Manager struct {
	At      time.Time `json:"at"`               // when it was asked
	Started time.Time `json:"started,omitzero"` // when Run was called
	// Stage is what Run is doing, since StageSince, and WaitsFor is what it waits for, in words, if it does.
	Stage      Stage     `json:"stage"`
	StageSince time.Time `json:"stageSince,omitzero"`
	WaitsFor   string    `json:"waitsFor,omitempty"`
	// NotReady says why /readyz fails, if it does, and NotHealthy why /healthz does; checks of the user's are not among
	// them. They name informers and controllers and what is wrong, without texts of errors.
	NotReady    []string     `json:"notReady,omitempty"`
	NotHealthy  []string     `json:"notHealthy,omitempty"`
	Leadership  *Leadership  `json:"leadership,omitempty"` // nil without an Elector
	Controllers []Controller `json:"controllers,omitempty"`
	Informers   []Informer   `json:"informers,omitempty"`
}

// Stage is what Manager.Run of package reconcile is doing.
type Stage string

const (
	StageNotStarted  Stage = "NotStarted"  // Run has not been called
	StageSyncing     Stage = "Syncing"     // it waits for the first lists
	StageCampaigning Stage = "Campaigning" // the caches are complete, and this process does not lead
	StageHandover    Stage = "Handover"    // this process leads; its caches have yet to see the last leader's writes
	StageWorking     Stage = "Working"     // the workers run
	StageStopping    Stage = "Stopping"    // Run is to end, or leadership is lost: no key is taken, calls may go on
	StageStopped     Stage = "Stopped"     // Run has returned
)

// Leadership is what the Elector says. What it does not say is empty.
type Leadership struct {
	Lease    string `json:"lease,omitempty"`    // namespace/name
	Identity string `json:"identity,omitempty"` // of this process
	Leading  bool   `json:"leading,omitempty"`
	// Holder is who holds the Lease, as this process has seen it last; empty: nobody. The Lease has not changed since
	// HolderSince, by the clock of this process. Transitions is how often the holder has changed.
	Holder      string    `json:"holder,omitempty"`
	HolderSince time.Time `json:"holderSince,omitzero"`
	Transitions int       `json:"transitions,omitempty"`
	// Tenures counts the times that this process has led, the present one included. It began at TenureSince.
	Tenures     int       `json:"tenures,omitempty"`
	TenureSince time.Time `json:"tenureSince,omitzero"`
	// Handover says how the present or the last tenure began: "complete" if the caches have seen what the last leader
	// wrote, "incomplete" if the workers started although they have not. HandoverTook is how long that took.
	Handover     string        `json:"handover,omitempty"`
	HandoverTook time.Duration `json:"handoverTook,omitempty"`
	// NotReady is why this process could not lead, if it could not.
	NotReady *Error `json:"notReady,omitempty"`
	// Sharded says that all processes lead, each some slices of the keys, and Lease is that of their table. A tenure is
	// the time in which this process takes part. NotLed is set while nobody leads some of the slices.
	Sharded bool   `json:"sharded,omitempty"`
	NotLed  *Error `json:"notLed,omitempty"`
}
