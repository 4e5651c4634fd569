package reconcile

import "time"

// What follows is what a Manager and its Controllers say of themselves: [Manager.Inspect], [Controller.Inspect],
// [Controller.InspectKeys] and [Controller.InspectKey] return it. It is plain data, and a copy: nothing in it changes
// after it has been handed out. It has no value of an object, only names, versions, paths of fields, and the kinds of
// errors; their texts, which may quote values, are left out unless ManagerOptions.ErrorTexts is set.
//
// In JSON the fields have the names of their tags. A field that is empty or zero is left out. Times are as in RFC 3339,
// and durations are numbers of nanoseconds. More fields may come.

// ManagerStatus is what a Manager looks like at one moment.
type ManagerStatus struct {
	At      time.Time `json:"at"`               // when it was asked
	Started time.Time `json:"started,omitzero"` // when Run was called
	// Stage is what Run is doing, since StageSince, and WaitsFor is what it waits for, in words, if it does.
	Stage      Stage     `json:"stage"`
	StageSince time.Time `json:"stageSince,omitzero"`
	WaitsFor   string    `json:"waitsFor,omitempty"`
	// NotReady says why /readyz fails, if it does, and NotHealthy why /healthz does; checks of the user's are not among
	// them. They name informers and controllers and what is wrong, without texts of errors.
	NotReady    []string           `json:"notReady,omitempty"`
	NotHealthy  []string           `json:"notHealthy,omitempty"`
	Leadership  *LeadershipStatus  `json:"leadership,omitempty"` // nil without an Elector
	Controllers []ControllerStatus `json:"controllers,omitempty"`
	Informers   []InformerStatus   `json:"informers,omitempty"`
}

// Stage is what [Manager.Run] is doing.
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

// LeadershipStatus is what the Elector says. What it does not say is empty.
type LeadershipStatus struct {
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
	NotReady *ErrorRecord `json:"notReady,omitempty"`
}

// InformerStatus is what an informer of the Manager says.
type InformerStatus struct {
	Name     string `json:"name"`
	Group    string `json:"group,omitempty"`    // of what it follows, if its client says it
	Version  string `json:"version,omitempty"`  // the same
	Resource string `json:"resource,omitempty"` // the same
	Objects  int    `json:"objects"`            // in its cache
	// ResourceVersion is how far the cache has come.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// The following are those of informer.Health. Reason is its LastError, while State is not Live.
	State        string       `json:"state"`
	Since        time.Time    `json:"since,omitzero"`
	Reason       *ErrorRecord `json:"reason,omitempty"`
	LastProgress time.Time    `json:"lastProgress,omitzero"`
	// Silent says that the cache is Live although the server has sent nothing for five minutes, not even a bookmark.
	Silent   bool `json:"silent,omitempty"`
	Lists    int  `json:"lists,omitempty"`
	Rewinds  int  `json:"rewinds,omitempty"`
	Rejected int  `json:"rejected,omitempty"`
	Queued   int  `json:"queued,omitempty"`
	// Namespaces are those that the informer follows one by one; none if it follows all together. Each has a name, a
	// version, a state with its time and reason, and its last progress; the other fields are of the informer.
	Namespaces []NamespaceStatus `json:"namespaces,omitempty"`
}

// NamespaceStatus is the part of an InformerStatus that a namespace has for itself.
type NamespaceStatus struct {
	Name            string       `json:"name"`
	ResourceVersion string       `json:"resourceVersion,omitempty"`
	State           string       `json:"state"`
	Since           time.Time    `json:"since,omitzero"`
	Reason          *ErrorRecord `json:"reason,omitempty"`
	LastProgress    time.Time    `json:"lastProgress,omitzero"`
}

// ControllerStatus is what a Controller looks like at one moment.
type ControllerStatus struct {
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

// RunSummary is a run of any key.
type RunSummary struct {
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name"`
	Started   time.Time     `json:"started"`
	Took      time.Duration `json:"took"`
	Result    string        `json:"result"` // as in RunRecord
	Writes    int           `json:"writes,omitempty"`
}

// KeyState is what a key does, or waits for.
type KeyState string

const (
	KeyNotStarted KeyState = "NotStarted" // the Manager has not started, or has stopped
	KeySyncing    KeyState = "Syncing"    // no key is reconciled before the caches are complete
	KeyStandby    KeyState = "Standby"    // this process does not lead, or is about to stop
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

// KeySummary is one line of the list of keys that [Controller.InspectKeys] returns.
type KeySummary struct {
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	State     KeyState  `json:"state"`
	Since     time.Time `json:"since,omitzero"`     // of the state, where it is known
	Next      time.Time `json:"next,omitzero"`      // when a delay of the key ends
	Failures  int       `json:"failures,omitempty"` // in a row
	Priority  int       `json:"priority,omitempty"` // as in KeyStatus
	Group     string    `json:"group,omitempty"`
	// Of the runs that are remembered: how many there are, when the last one started, and what came out.
	Runs       int       `json:"runs,omitempty"`
	LastRun    time.Time `json:"lastRun,omitzero"`
	LastResult string    `json:"lastResult,omitempty"`
}

// KeyStatus is all that is known of a key of a controller.
type KeyStatus struct {
	At         time.Time `json:"at"` // when it was asked
	Controller string    `json:"controller"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	State      KeyState  `json:"state"`
	Since      time.Time `json:"since,omitzero"` // of the state, where it is known
	Next       time.Time `json:"next,omitzero"`  // when a delay of the key ends
	// Why is the sentence of [Controller.Why].
	Why string `json:"why"`
	// Objects says what the caches of For hold under this key, one for each.
	Objects []ObjectRecord `json:"objects,omitempty"`
	// Failures is how often the key has failed in a row, according to the rate limiter.
	Failures int `json:"failures,omitempty"`
	// Priority is what Options.Priority says, less [Background] if only a first list or a resync has named the key.
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
	Causes     []CauseRecord `json:"causes,omitempty"`
	MoreCauses int           `json:"moreCauses,omitempty"`
	// Waits are the times since the last run in which the key was held back, and Debts is what it owes now.
	Waits   []WaitRecord   `json:"waits,omitempty"`
	Debts   []DebtRecord   `json:"debts,omitempty"`
	HotLoop *HotLoopRecord `json:"hotLoop,omitempty"` // nil unless it is in one
	// Running is the run that goes on, and Runs are the last ones that have ended, the latest last: at most eight. A
	// run that found nothing to do is listed if the key has others to list, else LastQuiet says when the last one
	// started, as far back as that is remembered.
	Running   *RunRecord  `json:"running,omitempty"`
	Runs      []RunRecord `json:"runs,omitempty"`
	LastQuiet time.Time   `json:"lastQuiet,omitzero"`
}

// ObjectRecord is the object of a key in a cache.
type ObjectRecord struct {
	Informer        string       `json:"informer"`
	Exists          bool         `json:"exists,omitempty"` // in the cache
	ResourceVersion string       `json:"resourceVersion,omitempty"`
	Deleting        bool         `json:"deleting,omitempty"` // it has a deletionTimestamp
	Owner           *OwnerRecord `json:"owner,omitempty"`    // by its ownerReference with controller: true
	// Invalid is why its present state, InvalidVersion, cannot be taken.
	Invalid        *ErrorRecord `json:"invalid,omitempty"`
	InvalidVersion string       `json:"invalidVersion,omitempty"`
	OutOfScope     bool         `json:"outOfScope,omitempty"` // the informer does not follow the namespace
}

// OwnerRecord is the controlling owner of an object.
type OwnerRecord struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

// RunRecord is one call of Reconcile, or of Options.Invalid.
type RunRecord struct {
	Started time.Time     `json:"started"`
	Took    time.Duration `json:"took"`
	// Causes are what had named the key, as [Causes] reports it, and MoreCauses counts the changes besides.
	Causes     []CauseRecord `json:"causes,omitempty"`
	MoreCauses int           `json:"moreCauses,omitempty"`
	// Waits are the times since the run before it in which the key was held back.
	Waits []WaitRecord `json:"waits,omitempty"`
	// Writes are the requests to write, refused ones included, in their order, and MoreWrites counts those that came
	// after the first 16. Requests counts all requests.
	Writes     []WriteRecord `json:"writes,omitempty"`
	MoreWrites int           `json:"moreWrites,omitempty"`
	Requests   int           `json:"requests,omitempty"`
	// BeforeRequests is how much of the time no request was under way before the last one: it is long if the client has
	// a limit of its own.
	BeforeRequests time.Duration `json:"beforeRequests,omitempty"`
	// Request is the latest request of a run that goes on, as far as it has made one.
	Request *RequestRecord `json:"request,omitempty"`
	// Result is what a Recorder is told: success, requeue_after, error, retry_after, terminal, panic or stopped. It is
	// empty while the run goes on.
	Result string       `json:"result,omitempty"`
	Error  *ErrorRecord `json:"error,omitempty"`
	// Again is when the key is to come back by itself, as the run asked for or the rate limiter decided.
	Again time.Time `json:"again,omitzero"`
	// Invalid says that Reconcile was not called, since the object is invalid.
	Invalid bool `json:"invalid,omitempty"`
	// Where is the user's code in which the run has panicked or is stuck: function, file and line.
	Where string `json:"where,omitempty"`
	// Repeated counts the runs just before this one that, like this one, found nothing to do. They are not listed.
	Repeated int `json:"repeated,omitempty"`
	// Forgotten counts the runs after this one that failed as well, and are not listed: the first run of a row of
	// failures stays, as it has the cause.
	Forgotten int `json:"forgotten,omitempty"`
}

// CauseRecord is a [Cause].
type CauseRecord struct {
	Source          string    `json:"source"`
	Namespace       string    `json:"namespace,omitempty"` // of the object that has changed
	Name            string    `json:"name,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	Count           int       `json:"count"`
	First           time.Time `json:"first"`
	Last            time.Time `json:"last"`
}

// WaitRecord is a time in which a key was held back.
type WaitRecord struct {
	For  WaitReason `json:"for"`
	From time.Time  `json:"from"`
	To   time.Time  `json:"to,omitzero"` // zero: it goes on
	// Of WaitQueue, the priority and the group.
	Priority int    `json:"priority,omitempty"`
	Group    string `json:"group,omitempty"`
	// Of WaitParked, up to four of the debts that the key had when it was parked, and how many more.
	Debts     []DebtRecord `json:"debts,omitempty"`
	MoreDebts int          `json:"moreDebts,omitempty"`
}

// WaitReason is what a key waited for.
type WaitReason string

const (
	WaitQueue   WaitReason = "queue"   // a worker
	WaitParked  WaitReason = "parked"  // a cache
	WaitHotLoop WaitReason = "hotLoop" // the end of the rest of a key in a hot loop
	WaitBackoff WaitReason = "backoff" // the delay after a failure
	WaitRequeue WaitReason = "requeue" // the RequeueAfter of the run before
	WaitPaused  WaitReason = "paused"  // Resume
)

// DebtRecord is something that a key waits for in one cache.
type DebtRecord struct {
	Kind DebtKind `json:"kind"`
	// Informer is that of the cache. Namespace and Name are of the object that was written; a name may be unknown. If
	// the cache is not ready, Namespace is where it is not.
	Informer  string `json:"informer"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// ResourceVersion is that of the write, if it has one.
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	Since           time.Time `json:"since"`
	// The cache at the time of the record.
	CacheVersion string       `json:"cacheVersion,omitempty"`
	CacheState   string       `json:"cacheState"`
	CacheSince   time.Time    `json:"cacheSince,omitzero"`
	CacheReason  *ErrorRecord `json:"cacheReason,omitempty"`
	// CacheInvalid says that the cache cannot take what was written.
	CacheInvalid bool `json:"cacheInvalid,omitempty"`
}

// DebtKind is the kind of a debt; the package's doc says what ends each.
type DebtKind string

const (
	DebtChange   DebtKind = "change"         // the object has been created or changed
	DebtDeletion DebtKind = "deletion"       // the object has been deleted
	DebtUnknown  DebtKind = "unknownOutcome" // the answer to a write was lost
	DebtNotReady DebtKind = "cacheNotReady"  // no write: the cache is incomplete, or older than its MaxStaleness
	DebtUnderWay DebtKind = "underWay"       // a write that has not been answered; of any resource, so without a cache
)

// HotLoopRecord says how a key repeats itself.
type HotLoopRecord struct {
	Repeats    int       `json:"repeats"`
	RestsUntil time.Time `json:"restsUntil,omitzero"`
	// Undone says that another writer undoes each write.
	Undone bool `json:"undone,omitempty"`
	// Changing is an object and its fields that change, by name; empty while that is not known.
	Changing string `json:"changing,omitempty"`
}

// WriteRecord is a request to write that [TrackWrites] has seen, or that [Wrote] or [Deleted] has reported.
type WriteRecord struct {
	At   time.Time     `json:"at"` // when it was sent
	Took time.Duration `json:"took,omitempty"`
	// Verb is create, update, patch, apply, delete or deletecollection, or wrote or deleted for a report.
	Verb        string `json:"verb"`
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource"` // of a report, the informer's name
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	DryRun      bool   `json:"dryRun,omitempty"`
	// Paths are the fields that a patch or an apply sets or removes, such as spec.replicas, and those in which an
	// update differs from the cached object; up to eight of them, and MorePaths counts the others. Elements of lists
	// have no index. Of a Secret there are only the top fields. Other verbs have no paths.
	Paths     []string `json:"paths,omitempty"`
	MorePaths int      `json:"morePaths,omitempty"`
	// PathsUnknown says in a few words why the paths of a patch, an apply or an update are not known: its body is
	// longer than 64 KiB, the controller wrote more than 512 KiB a second, or no cache of the controller had the
	// version that was updated. It is empty if they are known.
	PathsUnknown string `json:"pathsUnknown,omitempty"`
	// Code is the HTTP status of the answer, or 0 if the answer was lost, or for a report. ResourceVersion is that of
	// the object after the write.
	Code            int    `json:"code,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Lost says that it is unknown whether the write has happened.
	Lost  bool         `json:"lost,omitempty"`
	Error *ErrorRecord `json:"error,omitempty"`
}

// RequestRecord is a request of any kind.
type RequestRecord struct {
	Method   string    `json:"method"`
	Resource string    `json:"resource,omitempty"`
	Since    time.Time `json:"since"`
	// Answered says that no request is under way any more. Code is the HTTP status, or 0 if there was no answer.
	Answered bool `json:"answered,omitempty"`
	Code     int  `json:"code,omitempty"`
}

// ErrorRecord is what is said of an error.
type ErrorRecord struct {
	// Type is the Go type of the innermost error.
	Type string `json:"type"`
	// Reason and Code are those of the API server's Status, if the error is one, such as Forbidden and 403.
	Reason string `json:"reason,omitempty"`
	Code   int    `json:"code,omitempty"`
	// Text is the error's text, if ManagerOptions.ErrorTexts is set, cut off after 4 KiB. It may quote values of
	// objects.
	Text string `json:"text,omitempty"`
}
