package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// QuorumLoss is what happens when so many members have lost their data for good that no quorum can come back. A member
// that does not answer has not lost its data: its claim must be gone, or its volume, or the node of its local volume,
// or etcd has found the disk empty.
type QuorumLoss struct {
	// Policy is Manual or Recover. With Manual the operator changes nothing, and the condition QuorumLost says what a
	// person can do. With Recover the cluster begins anew with the member that has the highest committed index of those
	// whose data are left. Writes that were acknowledged and did not reach that member are lost.
	//
	// +kubebuilder:default=Manual
	// +kubebuilder:validation:Enum=Manual;Recover
	Policy QuorumLossPolicy `json:"policy,omitempty"`

	// AfterSeconds is how long the condition QuorumLost must have been True before the operator recovers.
	//
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	AfterSeconds int32 `json:"afterSeconds,omitempty"`
}

// QuorumLossPolicy is Manual or Recover.
type QuorumLossPolicy string

// The policies.
const (
	QuorumLossManual  QuorumLossPolicy = "Manual"
	QuorumLossRecover QuorumLossPolicy = "Recover"
)

// Recovery is the last recovery from a quorum that was lost for good. It is written before anything is done, so that an
// operator that takes over goes on with the same member.
type Recovery struct {
	// Survivor is the name of the member with which the cluster has begun anew.
	Survivor string `json:"survivor"`

	// Lost are the members that had lost their data, and Discarded those whose data are left aside, since the survivor
	// had more. Their claims are deleted when the new cluster answers.
	//
	// +listType=atomic
	Lost []string `json:"lost,omitempty"`
	// +listType=atomic
	Discarded []string `json:"discarded,omitempty"`

	// CommitIndex and Revision are what the survivor answered before. Writes that were acknowledged after them may be
	// lost. 0: it did not answer, and no other member was left.
	CommitIndex int64 `json:"commitIndex,omitempty"`
	Revision    int64 `json:"revision,omitempty"`

	// Chosen is when the choice was made, Served when the survivor had begun the cluster anew, and Finished when the
	// new cluster served its list of members and nothing of the old one was left.
	Chosen   metav1.Time  `json:"chosen"`
	Served   *metav1.Time `json:"served,omitempty"`
	Finished *metav1.Time `json:"finished,omitempty"`

	// ServedRevision is the revision with which the cluster has begun anew.
	ServedRevision int64 `json:"servedRevision,omitempty"`
}

// QuorumLost is a condition of an EtcdCluster: so many members have lost their data for good that no quorum can come
// back. It is there once this has happened.
const QuorumLost = "QuorumLost"

// Reasons of the condition QuorumLost.
const (
	ReasonManual     = "Manual"     // True: spec.quorumLoss does not allow a recovery
	ReasonNoSurvivor = "NoSurvivor" // True: the member to go on with cannot be told; the message says why
	ReasonWaiting    = "Waiting"    // True: the operator recovers when spec.quorumLoss.afterSeconds are over
	ReasonRecovering = "Recovering" // True: a recovery is under way
	ReasonRecovered  = "Recovered"  // False: the cluster has begun anew; the message says what may be lost
	ReasonReturned   = "Returned"   // False: a quorum has come back without the operator
)
