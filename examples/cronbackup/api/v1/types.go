package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CronBackup backs a database up, time and again.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cb,categories=all
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="Database",type=string,JSONPath=`.spec.targetDatabase`
// +kubebuilder:printcolumn:name="Suspend",type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Last schedule",type=date,JSONPath=`.status.lastScheduleTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 52",message="name too long for a CronJob"
type CronBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CronBackupSpec   `json:"spec"`
	Status CronBackupStatus `json:"status,omitempty"`
}

// CronBackupSpec is what the user wants.
type CronBackupSpec struct {
	// Schedule says when backups start, in UTC: five fields of cron, or a macro such as @daily. If it is left out,
	// backups start once a day, at a minute that depends on the name.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:Pattern=`^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|\S+( \S+){4})$`
	Schedule string `json:"schedule,omitempty"`

	// TargetDatabase is the database to be backed up, by the host name of its server. It cannot be changed, because
	// the backups that exist are of this database.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; make another CronBackup"
	TargetDatabase string `json:"targetDatabase"`

	// RetentionDays is how many days a backup is kept. The backup program deletes older ones.
	//
	// +kubebuilder:default=7
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9999
	RetentionDays int32 `json:"retentionDays,omitempty"`

	// Suspend stops new backups. One that runs goes on.
	Suspend bool `json:"suspend,omitempty"`
}

// CronBackupStatus is what the operator has seen.
type CronBackupStatus struct {
	// ObservedGeneration is the generation of the spec that the rest of the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// CronJobName is the name of the CronJob that makes the backups.
	CronJobName string `json:"cronJobName,omitempty"`

	// LastScheduleTime is when the last backup was started.
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// LastSuccessfulTime is when the last backup succeeded.
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`

	// Conditions has one condition, Ready.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The condition of a CronBackup, and its reasons.
const (
	Ready = "Ready"

	ReasonScheduled = "Scheduled" // True: the CronJob is as wanted
	ReasonSuspended = "Suspended" // True: the CronJob is as wanted, and starts nothing
	// False: the CronJob or the Job of that name belongs to another owner, or none
	ReasonNameTaken     = "NameTaken"
	ReasonRefused       = "Refused"       // False: the API server refuses the CronJob, such as for its schedule
	ReasonInvalid       = "Invalid"       // of an Event only: the object does not fit the Go type
	ReasonCleaningUp    = "CleaningUp"    // False: the CronBackup is being deleted
	ReasonCleanupFailed = "CleanupFailed" // False: the Job that cleans up has failed; it will be made again
)

// SkipCleanup is an annotation of a CronBackup. If its value is "true" the CronBackup is deleted without a clean-up,
// and its backups stay.
const SkipCleanup = "backups.example.com/skip-cleanup"

// Finalizer holds a CronBackup back until its backups are cleaned up.
const Finalizer = "backups.example.com/cleanup"
