package status

import (
	"time"

	"github.com/thermostat-go/thermostat/workqueue"
)

// Controller is what a Controller looks like at one moment.
type Controller struct {
	Name    string        `json:"name"`
	Sources []string      `json:"sources,omitempty"` // as in Cause.Source: "For deployments", "Owns pods"
	Workers int           `json:"workers"`
	Timeout time.Duration `json:"timeout"`
	// Objects counts the objects of the informers given to For.
	Objects int `json:"objects,omitempty"`
	// Keys by what they do. One that runs and is named meanwhile counts as Running; one that is Delayed, and named,
	// counts as Ready, too.
	Ready   int `json:"ready,omitempty"`   // wait for a worker
	Running int `json:"running,omitempty"` // are reconciled, the stuck ones included
	Delayed int `json:"delayed,omitempty"` // come back when a delay has ended
	Failing int `json:"failing,omitempty"` // have failed at least once since they last succeeded
	Parked  int `json:"parked,omitempty"`  // wait for caches
	Failed  int `json:"failed,omitempty"`  // failed with Terminal in their last run, as far as that is remembered
	Invalid int `json:"invalid,omitempty"` // were not reconciled in their last run, as the object is invalid
	// Panicking counts the objects on which a function of a source or a condition panicked when it saw them last.
	Panicking int `json:"panicking,omitempty"`
	Paused    int `json:"paused,omitempty"` // wait for Resume
	Stuck     int `json:"stuck,omitempty"`  // calls that do not return
	Hot       int `json:"hot,omitempty"`    // in a hot loop
	// The longest of their times.
	OldestReady   time.Duration `json:"oldestReady,omitempty"`
	LongestRun    time.Duration `json:"longestRun,omitempty"`
	LongestParked time.Duration `json:"longestParked,omitempty"`
	// Since the process started.
	Runs     uint64 `json:"runs,omitempty"`
	Failures uint64 `json:"failures,omitempty"` // runs with an error
	Adds     uint64 `json:"adds,omitempty"`     // times that a key became ready
	Retries  uint64 `json:"retries,omitempty"`
	HotLoops int    `json:"hotLoops,omitempty"`
	// Remembered counts the runs that InspectKey can show in full, and Recent are the latest runs of any key, the
	// latest first.
	Remembered int          `json:"remembered,omitempty"`
	Recent     []RunSummary `json:"recent,omitempty"`
}

// MaxRecent is how many runs Controller.Recent has at most.
const MaxRecent = 1024

// RunSummary is a run of any key.
type RunSummary struct {
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name"`
	Started   time.Time     `json:"started"`
	Took      time.Duration `json:"took"`
	Result    string        `json:"result"` // as in Run
	Writes    int           `json:"writes,omitempty"`
}

// Stats is what a controller looks like at one moment.
type Stats struct {
	Queue   workqueue.Stats
	Workers int
	// Timeout is how long a call of Reconcile may take, as configured.
	Timeout time.Duration
	// Parked counts the keys that a worker has taken and parked: they wait for a cache to see what they wrote, or to be
	// complete or young enough to be acted on.
	Parked int
	// LongestParked is for how long the first of them has been waiting.
	LongestParked time.Duration
	// Paused counts the keys for which Pause was called.
	Paused int
	// Stuck counts the calls of Reconcile that have not returned although their context ended at least 10 s ago.
	Stuck int
	// HotKeys counts the keys in a hot loop, which are slowed down: only their own runs bring them up, or another
	// writer undoes each of their writes. HotLoops counts the hot loops that have ever begun.
	HotKeys, HotLoops int
}
