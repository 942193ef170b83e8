package nobody
