package plan

import "fmt"

// Action is what is done next.
type Action struct {
	Do Verb
	// Member is whom it is about, by name and ID.
	Member string
	ID     uint64
	// URL is the address of Form, AddLearner and Readdress; Version is that of pods, words and Downgrade.
	URL     string
	Version Version
	// Why is for people: what is missing, or what a Wait is for.
	Why string
}

// Verb is a kind of action. Its text is the reason in conditions and Events.
type Verb string

// Actions on objects of Kubernetes.
const (
	CreateClaim Verb = "CreateClaim"
	CreatePod   Verb = "CreatePod"
	DeletePod   Verb = "DeletePod"
	DeleteClaim Verb = "DeleteClaim"
	DeleteWord  Verb = "DeleteWord"
	Form        Verb = "Form"       // word: begin a new cluster, alone
	TellBegin   Verb = "Begin"      // word: join, also with an empty disk
	TellRestart Verb = "Restart"    // word: start with the disk that was written to
	SetImage    Verb = "SetImage"   // of the pod, when the word has the version
	RollBack    Verb = "RollBack"   // SetImage, after the image that the pod has is remembered as Cluster.Failed
	RenewTrust  Verb = "RenewTrust" // delete the pod: the next one trusts the CAs that the cluster has now
)

// Actions on etcd.
const (
	AddLearner      Verb = "AddLearner"
	Promote         Verb = "Promote"
	Remove          Verb = "Remove"
	Readdress       Verb = "Readdress" // tell the others where the member is now
	MoveLeader      Verb = "MoveLeader"
	Downgrade       Verb = "Downgrade"
	CancelDowngrade Verb = "CancelDowngrade"
	Compact         Verb = "Compact" // drop old revisions, and Defragment
	Defragment      Verb = "Defragment"
	Disarm          Verb = "Disarm" // the alarm NOSPACE
)

// Actions of a recovery from a lost quorum.
const (
	ChooseSurvivor  Verb = "ChooseSurvivor"  // write down with which member the cluster begins anew
	ForceNewCluster Verb = "ForceNewCluster" // make the pod with which it does
	Resume          Verb = "Resume"          // write down that it has, and delete that pod
)

// Actions that change nothing.
const (
	Wait   Verb = "Waiting" // for what Why says; look again soon
	Refuse Verb = "Refused" // the spec asks for what etcd cannot do
	Pause  Verb = "Paused"
	Rest   Verb = "Done" // everything is as it should be
)

// Changes reports whether the action changes anything.
func (a Action) Changes() bool {
	switch a.Do {
	case Wait, Refuse, Pause, Rest:
		return false
	}
	return true
}

// Notable reports whether people want to know of the action: it changes which members there are, or interrupts one.
func (a Action) Notable() bool {
	switch a.Do {
	case CreateClaim, CreatePod, DeletePod, DeleteClaim, DeleteWord, TellBegin, TellRestart:
		return false
	}
	return a.Changes()
}

func (a Action) String() string {
	if a.Member == "" && a.ID == 0 {
		return fmt.Sprintf("%s: %s", a.Do, a.Why)
	}
	name := a.Member
	if name == "" {
		name = fmt.Sprintf("member %x", a.ID)
	}
	return fmt.Sprintf("%s %s: %s", a.Do, name, a.Why)
}

// do makes an action about a member.
func do(verb Verb, m *Member, why string) *Action {
	return &Action{Do: verb, Member: m.Name, ID: m.ID, Why: why}
}

func wait(format string, args ...any) *Action {
	return &Action{Do: Wait, Why: fmt.Sprintf(format, args...)}
}
