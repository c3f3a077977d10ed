# Odeum on a CPU. Build in the root of a clone:
#     docker build --file docker/cpu.Dockerfile --tag odeum:cpu .
#     docker run --rm --volume "$PWD/runs:/home/user/runs" odeum:cpu compare digits --seeds 3
# We have not built this image: the machine that we work on has no Docker.
FROM python:3.11-slim

WORKDIR /odeum
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu \
        "torch==2.13.0+cpu" ".[hf]" \
    && rm -rf /odeum

RUN useradd --create-home user && mkdir -p /home/user/runs /home/user/data && chown -R user /home/user
USER user
WORKDIR /home/user
ENV ODEUM_DATA=/home/user/data
ENTRYPOINT ["odeum"]
CMD ["--help"]
