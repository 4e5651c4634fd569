package status

import "time"

// KeyState is what a key does, or waits for.
type KeyState string

const (
	KeyNotStarted KeyState = "NotStarted" // the Manager has not started, or has stopped
	KeySyncing    KeyState = "Syncing"    // no key is reconciled before the caches are complete
	KeyStandby    KeyState = "Standby"    // this process does not lead, or not the key's slice, or is about to stop
	KeyPaused     KeyState = "Paused"     // Pause was called for it
	KeyRunning    KeyState = "Running"
	KeyStuck      KeyState = "Stuck"      // its call has not returned although its context has ended
	KeyParked     KeyState = "Parked"     // it waits until caches show what it wrote, or may be acted on
	KeyReady      KeyState = "Ready"      // it waits for a worker
	KeyResting    KeyState = "Resting"    // it rests because it is in a hot loop
	KeyBackingOff KeyState = "BackingOff" // it has failed, and is tried again after a delay
	KeyInvalid    KeyState = "Invalid"    // the cache cannot take its object, and there is no Options.Invalid
	KeyFailed     KeyState = "Failed"     // it has failed with Terminal, and waits for a change
	KeyScheduled  KeyState = "Scheduled"  // it has nothing to do before its next run, whose time is known
	KeySettled    KeyState = "Settled"    // it has nothing to do until something changes
	KeyUnknown    KeyState = "Unknown"    // nothing is known of it: it has no object, and nothing has named it
)

// KeySummary is one line of the list of keys that Controller.InspectKeys returns.
type KeySummary struct {
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	State     KeyState  `json:"state"`
	Since     time.Time `json:"since,omitzero"`     // of the state, where it is known
	Next      time.Time `json:"next,omitzero"`      // when a delay of the key ends
	Failures  int       `json:"failures,omitempty"` // in a row
	Priority  int       `json:"priority,omitempty"` // as in Key
	Group     string    `json:"group,omitempty"`
	// Of the runs that are remembered: how many there are, when the last one started, and what came out.
	Runs       int       `json:"runs,omitempty"`
	LastRun    time.Time `json:"lastRun,omitzero"`
	LastResult string    `json:"lastResult,omitempty"`
}

// Key is all that is known of a key of a controller.
type Key struct {
	At         time.Time `json:"at"` // when it was asked
	Controller string    `json:"controller"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	State      KeyState  `json:"state"`
	Since      time.Time `json:"since,omitzero"` // of the state, where it is known
	Next       time.Time `json:"next,omitzero"`  // when a delay of the key ends
	// Why is what the function Why says of the key.
	Why string `json:"why"`
	// Objects says what the caches of For hold under this key, one for each.
	Objects []Object `json:"objects,omitempty"`
	// Failures is how often the key has failed in a row, according to the rate limiter.
	Failures int `json:"failures,omitempty"`
	// Priority is what Options.Priority says, less Background if only a first list or a resync has named the key.
	// Group is what Options.Group says. Both are of a key in the queue.
	Priority int    `json:"priority,omitempty"`
	Group    string `json:"group,omitempty"`
	// RefusedUntil is until when the server has asked the key to wait. No change ends that.
	RefusedUntil time.Time `json:"refusedUntil,omitzero"`
	// Ahead counts the ready keys of a higher priority, and Ready all that are ready, if this key is one of them.
	Ahead int `json:"ahead,omitempty"`
	Ready int `json:"ready,omitempty"`
	// Again says that the key has been named during the run that goes on, so it runs again.
	Again bool `json:"again,omitempty"`
	// Causes are what has named the key since its last run began, and MoreCauses counts the changes besides.
	Causes     []Cause `json:"causes,omitempty"`
	MoreCauses int     `json:"moreCauses,omitempty"`
	// Waits are the times since the last run in which the key was held back, and Debts is what it owes now.
	Waits   []Wait   `json:"waits,omitempty"`
	Debts   []Debt   `json:"debts,omitempty"`
	HotLoop *HotLoop `json:"hotLoop,omitempty"` // nil unless it is in one
	Shard   *Shard   `json:"shard,omitempty"`   // nil without shards
	Doubt   *Doubt   `json:"doubt,omitempty"`   // nil unless a change that would name the key may be missed
	// Running is the run that goes on, and Runs are the last ones that have ended, the latest last: at most eight. A
	// run that found nothing to do is listed if the key has others to list, else LastQuiet says when the last one
	// started, as far back as that is remembered.
	Running   *Run      `json:"running,omitempty"`
	Runs      []Run     `json:"runs,omitempty"`
	LastQuiet time.Time `json:"lastQuiet,omitzero"`
}

// Shard is what this process knows of the slice of a key, where all processes lead.
type Shard struct {
	Slice int `json:"slice"`
	// Leader is the identity of the process that leads it, empty for nobody, and Since is when this process has seen
	// that first.
	Leader string    `json:"leader,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Here   bool      `json:"here,omitempty"` // the key may run here
}

// Object is the object of a key in a cache.
type Object struct {
	Informer        string `json:"informer"`
	Exists          bool   `json:"exists,omitempty"` // in the cache
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Deleting        bool   `json:"deleting,omitempty"` // it has a deletionTimestamp
	Owner           *Owner `json:"owner,omitempty"`    // by its ownerReference with controller: true
	// Invalid is why its present state, InvalidVersion, cannot be taken.
	Invalid        *Error `json:"invalid,omitempty"`
	InvalidVersion string `json:"invalidVersion,omitempty"`
	OutOfScope     bool   `json:"outOfScope,omitempty"` // the informer does not follow the namespace
}

// Owner is the controlling owner of an object.
type Owner struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

// HotLoop says how a key repeats itself.
type HotLoop struct {
	Repeats    int       `json:"repeats"`
	RestsUntil time.Time `json:"restsUntil,omitzero"`
	// Undone says that another writer undoes each write.
	Undone bool `json:"undone,omitempty"`
	// Changing is an object and its fields that change, by name; empty while that is not known.
	Changing string `json:"changing,omitempty"`
}

// Doubt is why changes that would name a key may be missed: a function of a source panics, or a cache does not follow
// its server.
type Doubt struct {
	Source string `json:"source"` // as in Cause
	// Panicking counts the objects on which a function of the source panics, and Example is one of them.
	Panicking int    `json:"panicking,omitempty"`
	Example   string `json:"example,omitempty"`
	// Informer is that of the cache, which has been in CacheState since Since. If that is Live, the server has sent
	// nothing since then, not even a bookmark.
	Informer   string    `json:"informer,omitempty"`
	CacheState string    `json:"cacheState,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	Reason     *Error    `json:"reason,omitempty"`
}
