package plan

// ReadRole is the manifest of a ClusterRole that is enough for a plan of any program. It grants no write. A plan of one
// program needs less: what that program reads, namespaces, the definitions of its custom resources and the
// configurations of webhooks; and lists of what may go with an object that it deletes.
//
// Whoever has it can read every Secret. Leave out what a program does not need; the report names the rights that it
// missed.
const ReadRole = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: plan
rules:
- apiGroups: ["*"]
  resources: ["*"]
  verbs: [get, list]
- nonResourceURLs: [/api, /api/*, /apis, /apis/*, /openapi, /openapi/*, /version, /version/, /healthz, /livez, /readyz]
  verbs: [get]
`

// AdmitRole is the manifest of a ClusterRole that [Options].Admission needs beside [ReadRole]. Kubernetes has no right
// to dry runs alone: who has this role can write everything. A plan sends nothing but dry runs by it. A plan of one
// program needs less: what that program may write.
const AdmitRole = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: plan-admission
rules:
- apiGroups: ["*"]
  resources: ["*"]
  verbs: [create, update, delete, bind, escalate]
`
