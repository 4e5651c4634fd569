package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "etcd.example.com", Version: "v1"}

// EtcdCluster is a cluster of etcd.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=etcd,categories=all
// +kubebuilder:printcolumn:name="Size",type=integer,JSONPath=`.spec.size`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Leader",type=string,JSONPath=`.status.leader`
// +kubebuilder:printcolumn:name=Available,type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name=Doing,type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 52",message="name too long for a member"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z][-a-z0-9]*$')",message="no Service name"
type EtcdCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   EtcdClusterSpec   `json:"spec"`
	Status EtcdClusterStatus `json:"status,omitempty"`
}

// EtcdClusterSpec is what the user wants.
//
// +kubebuilder:validation:XValidation:rule="has(self.restore)==has(oldSelf.restore)",message="for new clusters only"
// +kubebuilder:validation:XValidation:rule="has(self.tls)==has(oldSelf.tls)",message="tls is for new clusters only"
type EtcdClusterSpec struct {
	// Size is the number of voting members. An even number tolerates no more failures than the odd one below it; the
	// condition Degraded says so.
	//
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9
	Size int32 `json:"size,omitempty"`

	// Version is the version of etcd. Without it the cluster has the one that the operator runs with: its next version
	// may have another one.
	//
	// +optional
	Version Version `json:"version,omitempty"`

	// Image is the image of etcd without a tag. The tag is "v" and the version.
	//
	// +kubebuilder:default="gcr.io/etcd-development/etcd"
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^[a-z0-9][-a-zA-Z0-9._/]*(:[0-9]+/[-a-z0-9._/]+)?$`
	Image string `json:"image,omitempty"`

	// Storage is the disk of each member.
	//
	// +kubebuilder:default={}
	Storage Storage `json:"storage,omitempty"`

	// QuotaBytes is the size that the database may reach. Beyond it etcd raises the alarm NOSPACE and refuses writes.
	// Members that exist follow a change when they start again.
	//
	// +kubebuilder:default=2147483648
	// +kubebuilder:validation:Minimum=16777216
	// +kubebuilder:validation:Maximum=17179869184
	QuotaBytes int64 `json:"quotaBytes,omitempty"`

	// ReplaceAfterSeconds is how long a member must have been down before a new member takes its place. A member whose
	// disk is gone, or whose process ends at each start, is replaced at once.
	//
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	ReplaceAfterSeconds int32 `json:"replaceAfterSeconds,omitempty"`

	// QuorumLoss says what happens when a majority of the members has lost its data for good.
	//
	// +kubebuilder:default={}
	QuorumLoss QuorumLoss `json:"quorumLoss,omitempty"`

	// Paused stops the operator: it reports, and changes nothing.
	Paused bool `json:"paused,omitempty"`

	// TLS asks for certificates. Unset: members and clients talk in plain text, to whoever reaches them.
	TLS *TLS `json:"tls,omitempty"`

	// Restore begins the cluster with the data of a backup. Unset: it begins empty.
	Restore *Restore `json:"restore,omitempty"`

	// LastBackup asks for a backup before the EtcdCluster is deleted. If that cannot be made, the deletion goes on as
	// soon as this field is removed.
	LastBackup *LastBackup `json:"lastBackup,omitempty"`
}

// Restore names what a cluster begins with.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed"
type Restore struct {
	// Backup is the name of an EtcdBackup in the same namespace. Its claim must be where the first member's pod can
	// mount it.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=52
	Backup string `json:"backup"`
}

// LastBackup is the backup that is made when an EtcdCluster is deleted. Its name is "last-" and the UID of the
// EtcdCluster.
type LastBackup struct {
	// Claim is the name of the PersistentVolumeClaim that the file is written to, in the same namespace.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Claim string `json:"claim"`

	// RetentionDays is how many days the backup is kept. 0: for ever.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3650
	RetentionDays int32 `json:"retentionDays,omitempty"`
}

// Version is a version of etcd, 3.5.0 or later, such as 3.6.16. A change goes up or down by at most one minor version.
//
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:Pattern=`^3\.([5-9]|[1-9][0-9])\.(0|[1-9][0-9]{0,2})$`
// +kubebuilder:validation:XValidation:rule="int(self.split('.')[1])<=int(oldSelf.split('.')[1])+1",message="skips one"
// +kubebuilder:validation:XValidation:rule="int(self.split('.')[1])>=int(oldSelf.split('.')[1])-1",message="skips one"
type Version string

// Storage is a disk.
type Storage struct {
	// Size is that of the PersistentVolumeClaims that are made from now on. It cannot be reduced.
	//
	// +kubebuilder:default="4Gi"
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]*(Mi|Gi|Ti)$`
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity(oldSelf))>=0",message="cannot shrink"
	Size string `json:"size,omitempty"`

	// ClassName is the StorageClass. Empty: the cluster's default.
	//
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed"
	ClassName string `json:"className,omitempty"`
}

// EtcdClusterStatus is what the operator has seen.
type EtcdClusterStatus struct {
	// ObservedGeneration is the generation of the spec that the rest of the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// ClusterID is etcd's ID of the cluster, in hexadecimal. While it is empty the cluster has not been formed. Once it
	// is set, no member is ever started as a new cluster.
	ClusterID string `json:"clusterID,omitempty"`

	// Members are the members that etcd's list has, in the order of their names.
	//
	// +listType=map
	// +listMapKey=id
	Members []MemberStatus `json:"members,omitempty"`

	// Voters is the number of voting members, and Ready that of voters that answer.
	Voters int32 `json:"voters,omitempty"`
	Ready  int32 `json:"ready,omitempty"`

	// Leader is the name of the leader. Empty: there is none, or no member has answered.
	Leader string `json:"leader,omitempty"`

	// Version is the lowest version that a member runs.
	Version string `json:"version,omitempty"`

	// FailedVersion is the last version that a member did not start with. It is not tried again before the spec asks
	// for another one.
	FailedVersion string `json:"failedVersion,omitempty"`

	// CompactedRevision is the revision to which the operator has compacted the database after the alarm NOSPACE.
	CompactedRevision int64 `json:"compactedRevision,omitempty"`

	// TLS is what is known of the certificates.
	TLS *TLSStatus `json:"tls,omitempty"`

	// Recovery is the last recovery from a quorum that was lost for good.
	Recovery *Recovery `json:"recovery,omitempty"`

	// Conditions are Available, Progressing and Degraded, and those that only some clusters have.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MemberStatus is one member of etcd.
type MemberStatus struct {
	// ID is that of etcd, in hexadecimal.
	ID string `json:"id"`
	// Name is that of the pod. Empty: the member has never started.
	Name string `json:"name,omitempty"`
	// Learner is true for a member that follows and does not vote yet.
	Learner bool `json:"learner,omitempty"`
	// Healthy is true if the member answers and knows a leader.
	Healthy bool   `json:"healthy,omitempty"`
	Version string `json:"version,omitempty"`
	// DBSize is the size of the database file in bytes.
	DBSize int64 `json:"dbSize,omitempty"`
	// Alarms are those that the member has raised, such as NOSPACE.
	Alarms []string `json:"alarms,omitempty"`
}

// The conditions of an EtcdCluster.
const (
	Available   = "Available"   // a quorum of voters answers
	Progressing = "Progressing" // the operator has something to do; the reason is the action, or what it waits for
	Degraded    = "Degraded"    // a member is missing or does not answer, an alarm is raised, or the size is even
	Restored    = "Restored"    // the cluster has begun with the data of spec.restore
	Deletable   = "Deletable"   // the EtcdCluster is being deleted: whether its last backup is complete
)

// Reasons of the conditions. Those of Progressing are the actions of package plan as well.
const (
	ReasonQuorum    = "Quorum"    // Available: a quorum answers
	ReasonNotFormed = "NotFormed" // Available: the first member has not started yet
	ReasonNoQuorum  = "NoQuorum"  // Available: no quorum answers
	ReasonHealthy   = "Healthy"   // Degraded is False
	ReasonMissing   = "Missing"   // Degraded: fewer voters answer than the size asks for
	// Degraded: the voters that are missing may be alive, and are not replaced: only the operator does not reach them.
	ReasonUnreachable = "Unreachable"
	ReasonAlarm       = "Alarm"     // Degraded: etcd has raised an alarm
	ReasonEvenSize    = "EvenSize"  // Degraded: one member less tolerates as many failures
	ReasonNameTaken   = "NameTaken" // Progressing: an object of that name is not the operator's
	ReasonInvalid     = "Invalid"   // of an Event only: the object does not fit the Go type

	ReasonRestored      = "Restored"      // Restored is True
	ReasonRestoring     = "Restoring"     // Restored: the first member copies the data
	ReasonNoBackup      = "NoBackup"      // Restored: the EtcdBackup does not exist, or is not complete
	ReasonWrongVersion  = "WrongVersion"  // Restored: the snapshot is of another minor version
	ReasonRestoreFailed = "RestoreFailed" // Restored: the copy has failed, and is tried again
	ReasonLastBackup    = "LastBackup"    // Deletable: the last backup is under way
	ReasonBackupFailed  = "BackupFailed"  // Deletable: it has failed, and is tried again
)

// ClusterLabel is on each object of a member, and has the name of the EtcdCluster.
const ClusterLabel = "etcd.example.com/cluster"
