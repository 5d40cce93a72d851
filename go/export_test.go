package redlock

// SetServiceAccountToken sets the path of the pod's token, so that a test's process runs as in a pod.
func SetServiceAccountToken(path string) { serviceAccountToken = path }
