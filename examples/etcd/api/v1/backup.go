package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EtcdBackup is one snapshot of an EtcdCluster, as a file on a PersistentVolumeClaim. The file goes with the
// EtcdBackup, and stays when the EtcdCluster goes.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`
// +kubebuilder:printcolumn:name=Complete,type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].reason`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Size",type=integer,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="name too long for a label"
type EtcdBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   EtcdBackupSpec   `json:"spec"`
	Status EtcdBackupStatus `json:"status,omitempty"`
}

// EtcdBackupSpec is what the user wants. Only retentionDays can be changed.
type EtcdBackupSpec struct {
	// Cluster is the name of the EtcdCluster, in the same namespace.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=52
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; make another EtcdBackup"
	Cluster string `json:"cluster"`

	// Claim is the name of the PersistentVolumeClaim that the file is written to, in the same namespace.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; make another EtcdBackup"
	Claim string `json:"claim"`

	// DeadlineSeconds is how long the backup may take, with all tries. After that it has failed for good.
	//
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; make another EtcdBackup"
	DeadlineSeconds int32 `json:"deadlineSeconds,omitempty"`

	// RetentionDays is how many days the backup is kept. The operator deletes it then, unless it is the newest complete
	// one of its cluster. 0: it is kept.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3650
	RetentionDays int32 `json:"retentionDays,omitempty"`
}

// EtcdBackupStatus is what the operator has seen.
type EtcdBackupStatus struct {
	// ObservedGeneration is the generation of the spec that the rest of the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// File is the name of the file on the claim.
	File string `json:"file,omitempty"`

	// Version is that of the etcd that the snapshot is of.
	Version string `json:"version,omitempty"`

	// Revision is that of the database. All writes up to it are in the file.
	Revision int64 `json:"revision,omitempty"`

	// Keys is the number of keys.
	Keys int64 `json:"keys,omitempty"`

	// Size is that of the file in bytes.
	Size int64 `json:"size,omitempty"`

	// SHA256 is the hash of the database, in hexadecimal. It is also at the end of the file.
	SHA256 string `json:"sha256,omitempty"`

	// HashKV is etcd's own hash of all keys at the revision. The member has said the same one.
	HashKV int64 `json:"hashKV,omitempty"`

	// Started and Finished are when the first try began, and when the backup was complete or had failed.
	Started  *metav1.Time `json:"started,omitempty"`
	Finished *metav1.Time `json:"finished,omitempty"`

	// Conditions has one condition, Complete.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The condition of an EtcdBackup, and its reasons. ReasonNameTaken belongs to it as well: the Job of that name is not
// the operator's.
const (
	Complete = "Complete"

	ReasonVerified     = "Verified"     // True: the file is on the claim, and both hashes are as they should be
	ReasonRunning      = "Running"      // False: a Job is at work
	ReasonRetrying     = "Retrying"     // False: a Job has failed, and another one follows
	ReasonNoCluster    = "NoCluster"    // False: the EtcdCluster does not exist, or no member of it answers
	ReasonNoClaim      = "NoClaim"      // False: the PersistentVolumeClaim does not exist
	ReasonFailed       = "Failed"       // False: the deadline is over; there is no other try
	ReasonRemoving     = "Removing"     // the EtcdBackup is being deleted, and a Job removes the file
	ReasonRemoveFailed = "RemoveFailed" // that Job has failed, and another one follows
)

// KeepFile is an annotation of an EtcdBackup. If its value is "true" the EtcdBackup is deleted and the file stays.
const KeepFile = "etcd.example.com/keep-file"

// The finalizers: of an EtcdBackup, until its file is removed, and of an EtcdCluster, until its last backup is
// complete.
const (
	FileFinalizer       = "etcd.example.com/file"
	LastBackupFinalizer = "etcd.example.com/last-backup"
)

// BackupLabel is on the Jobs of EtcdBackups and on their pods, and has the name of the EtcdBackup.
const BackupLabel = "etcd.example.com/backup"
